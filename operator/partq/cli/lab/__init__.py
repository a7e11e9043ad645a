"""The commands of the laboratory: demo, bench, chaos and simulate."""
