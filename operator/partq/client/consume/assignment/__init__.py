"""A partition while a flow holds it, in each of the ways that a group may be in order."""
