"""Stored batches as Arrow columns, without a Python object per message."""
