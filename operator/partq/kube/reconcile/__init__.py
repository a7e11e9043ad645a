"""The loops of the operator: a worker per queue, its coordinator, and its status."""
