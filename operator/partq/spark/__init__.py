"""Spark reads queues, writes them, archives them and checks what happened to them."""
