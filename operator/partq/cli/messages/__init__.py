"""Commands that publish, consume and show messages."""
