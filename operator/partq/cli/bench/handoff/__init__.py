"""`partq bench handoff`: how long partitions stand still when consumers and brokers change."""
