"""Calls of client-assigned groups, and of administrators who say what may be registered there."""
