"""Publishing: from messages to batches per partition, to brokers, and back to results."""
