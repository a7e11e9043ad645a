"""The command line: commands, and the one place that joins store, shell and server."""
