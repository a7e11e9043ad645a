"""Traces and metrics of applications that use the client; each module needs an extra."""
