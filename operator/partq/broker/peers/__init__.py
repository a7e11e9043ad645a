"""Other brokers: calls to them, and the certificates that brokers show and trust."""
