"""`partq bench`: what a queue carries, beside what its Redis could carry at most."""
