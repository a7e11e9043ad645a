"""Several messages that are published together: all of them, or none."""
