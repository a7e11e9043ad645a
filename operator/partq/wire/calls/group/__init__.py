"""Calls about the consumers of a group: parts of partitions, the removal of a group."""
