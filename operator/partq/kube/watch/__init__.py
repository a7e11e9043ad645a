"""What Kubernetes tells: bodies read into values, kept as last heard, listed again."""
