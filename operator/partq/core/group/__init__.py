"""Consumer groups: who is a member, what moves to whom and when, and why."""
