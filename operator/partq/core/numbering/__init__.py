"""What the numbers of producers stand for."""
