"""The objects that the operator makes and deletes for a queue, and the Secrets it reads."""
