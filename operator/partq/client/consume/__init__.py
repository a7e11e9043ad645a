"""Consuming: flows, the partitions that a member holds, deliveries and their acks."""
