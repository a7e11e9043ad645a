"""Decisions as pure functions: values in, values out; no clock, no I/O."""
