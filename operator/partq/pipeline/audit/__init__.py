"""Checks the archived audit record against itself and against the archived messages."""
