"""Suggests how many partitions and consumers a queue needs, from what it has carried."""
