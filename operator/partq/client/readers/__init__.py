"""Parts of a reader without a consumer group."""
