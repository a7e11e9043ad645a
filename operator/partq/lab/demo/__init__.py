"""The main job on real input, with everything that can change changing under it."""
