"""Writing to a queue with Spark: rows as messages, in batches that are stored once."""
