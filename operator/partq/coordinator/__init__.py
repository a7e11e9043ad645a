"""The shell around core: load, step, save, perform."""
