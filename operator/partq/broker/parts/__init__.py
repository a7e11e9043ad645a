"""Partitions that several members of a group share: the keys of each member, and their moves."""
