"""What is judged of a simulated history, and what it is judged by."""
