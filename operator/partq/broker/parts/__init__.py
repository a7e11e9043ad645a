"""Partitions that several members of a group share: who has which keys, and how keys move."""
