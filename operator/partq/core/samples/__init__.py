"""Counts of the last ten minutes, which brokers keep and add up; percentiles of samples."""
