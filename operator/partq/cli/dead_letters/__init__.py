"""`partq dead-letters`."""
