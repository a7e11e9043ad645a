"""Times: the ages of messages, and how far a clock may be trusted."""
