"""Messages that are delivered later: when they are due, their cancellation."""
