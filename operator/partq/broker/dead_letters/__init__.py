"""Dead letters: written, kept in outboxes, and sent to the queues that they go to."""
