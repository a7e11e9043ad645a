"""The operator: it runs a coordinator per queue, from the objects that Kubernetes reports."""
