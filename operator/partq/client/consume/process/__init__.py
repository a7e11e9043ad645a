"""The process of a consumer: its signs of life, what holds it up, and the signals that end it."""
