"""The log of a partition: appending to it, its newest batches, and how much may be stored."""
