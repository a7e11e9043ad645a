"""The SDK: producer, consumer and the session that both use."""
