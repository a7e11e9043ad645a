"""One consumer group: what is observed of it, its members, its moves and its handoffs."""
