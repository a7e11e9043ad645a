"""The job that archives a queue: what it does, and the two engines that it runs on."""
