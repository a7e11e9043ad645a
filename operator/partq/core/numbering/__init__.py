"""What the numbers of producers stand for, and ids of messages."""
