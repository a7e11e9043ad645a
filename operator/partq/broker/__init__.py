"""What owns partitions: their logs, their groups, and the calls that clients make."""
