"""Judges what changes of the partition count have left in the records of partitions."""
