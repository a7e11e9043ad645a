"""What those who read logs without consuming them decide: order of partitions, pages of several."""
