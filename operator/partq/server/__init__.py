"""The HTTP server of every process that listens: what it takes from whoever connects is bounded."""
