"""Changes of the partition count under a steady load, measured."""
