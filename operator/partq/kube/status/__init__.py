"""From findings to status, conditions and Events. Pure."""
