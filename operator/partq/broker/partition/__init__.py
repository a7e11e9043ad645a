"""A partition that a broker owns, its groups, and their audit records."""
