"""Objects of Kubernetes: parsed into values, cached, listed again."""
