"""What callers ask of a broker, without HTTP: one module for each kind of call."""
