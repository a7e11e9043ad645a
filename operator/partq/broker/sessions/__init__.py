"""Sessions of a group of type Session: locks, what flows have of them, calls that wait."""
