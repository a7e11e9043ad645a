"""Commands about queues, their groups and partitions; and how every command finds its queue."""
