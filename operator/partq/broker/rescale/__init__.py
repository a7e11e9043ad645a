"""What a broker does for a change of the partition count: seals, opens, checks slots."""
