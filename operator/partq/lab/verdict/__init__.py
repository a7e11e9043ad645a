"""The verdict of the demo and of chaos: what the journals say about order, loss and causes."""
