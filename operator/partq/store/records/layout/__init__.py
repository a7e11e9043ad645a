"""The layout of a queue: its record, what changes write into partitions, marks."""
