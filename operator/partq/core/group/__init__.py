"""Consumer groups: their members, and which partition moves to which member, when and why."""
