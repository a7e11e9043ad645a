"""The cursor of a group in a partition: what was delivered, acknowledged and given back."""
