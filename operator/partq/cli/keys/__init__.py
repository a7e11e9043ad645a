"""Commands about the keys of one group: those that wait, and their states."""
