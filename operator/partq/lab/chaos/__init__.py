"""Every part is killed and frozen under load, and what the consumers saw is judged."""
