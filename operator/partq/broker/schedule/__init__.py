"""Batches that wait beside a log: appended when they are due."""
