"""What a queue reports to people: read from its records, or forecast by the planner."""
