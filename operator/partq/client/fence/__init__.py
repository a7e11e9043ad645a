"""Fencing in an SQL database: the statements, the connections that run them, the answer."""
