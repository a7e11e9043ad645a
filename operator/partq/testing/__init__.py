"""What tests need, ours and our users': a clock that is a number, a real broker."""
