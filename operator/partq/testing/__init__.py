"""What tests need, ours and our users': a real broker, a real Redis."""
