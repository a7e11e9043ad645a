"""One group in one partition: its token, deliveries, acks and handoffs."""
