"""What the oracle judges key by key."""
