"""Reading a queue with Spark: what a query covers, its ranges, and batches as Arrow columns."""
