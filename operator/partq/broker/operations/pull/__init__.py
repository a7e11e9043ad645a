"""Pulls of plain HTTP, and the acks of what was pulled."""
