"""A partition that a broker owns, its groups, and what its audit record is told of them."""
