"""Client-assigned groups: members that choose their partitions, and what they may choose."""
