"""What a queue carries, beside what its Redis could carry at most."""
