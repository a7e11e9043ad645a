"""Which queues a consumer of several queues wants, and where they are found."""
