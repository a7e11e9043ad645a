"""Checks what is archived: each row against the record of its batch, files, and their extent."""
