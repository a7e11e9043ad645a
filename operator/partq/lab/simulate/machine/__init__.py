"""What the simulated processes run on: time, network, and a Redis in this process."""
