"""The book of a group whose nacked messages hold up their key alone."""
