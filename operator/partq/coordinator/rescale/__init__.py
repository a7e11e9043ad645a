"""Changes of the partition count: their steps, and a layout that the store has rolled back."""
