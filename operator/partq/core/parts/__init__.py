"""Parts of partitions: the ranges of slots that members of a KeyShared group have."""
