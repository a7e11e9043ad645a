"""How long partitions pause when they are handed over, under load."""
