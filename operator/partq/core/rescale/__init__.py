"""Changes of the partition count: steps of the layout record, seals, gates, settlement."""
