"""The shell around core: observe, plan, record, perform."""
