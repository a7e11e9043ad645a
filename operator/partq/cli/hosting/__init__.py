"""The commands that are processes: those of pods, and `partq dev up` with all of them."""
