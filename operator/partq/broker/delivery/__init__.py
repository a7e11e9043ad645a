"""From stored batches to the flows of members, and from their acks to stored cursors."""
