"""Producers whose numbers stand for the same messages at each start, across changes."""
