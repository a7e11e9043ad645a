"""Publishes by plain HTTP: to which partitions, stored here or by the brokers that own them."""
