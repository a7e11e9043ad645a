"""The commands that ask a queue that runs: its messages, its groups, its state."""
