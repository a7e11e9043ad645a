"""The operator: what Kubernetes tells, brought together with the coordinator."""
