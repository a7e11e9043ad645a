"""What people are told of a queue: read from its records, or forecast by the planner."""
