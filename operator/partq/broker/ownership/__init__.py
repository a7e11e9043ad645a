"""Which partitions a broker owns: its lease, its claims, and how it gives partitions up."""
