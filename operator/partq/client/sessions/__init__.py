"""Sessions of a consumer: how they are accepted, kept, and handed out message by message."""
