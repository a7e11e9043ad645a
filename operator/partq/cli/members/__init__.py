"""The commands about the members of one group: what each holds, and its end."""
