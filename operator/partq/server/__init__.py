"""The HTTP server of every listening process, with bounds for each caller."""
