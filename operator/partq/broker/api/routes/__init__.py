"""One module per kind of call: parse, call the broker, render."""
