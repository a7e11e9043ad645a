"""Batches that wait beside a log, as their owner needs them."""
