"""Groups of the type Shared: whose turn it is, and the book in which each message stands alone."""
