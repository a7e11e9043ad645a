"""The deterministic simulator: the real parts under simulated time, network, faults and pods."""
