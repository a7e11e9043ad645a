"""The laboratory: bench, demo, chaos, the verdict on them, and the simulator."""
