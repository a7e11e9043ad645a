"""The archived messages, compared with what the record says of the log."""
