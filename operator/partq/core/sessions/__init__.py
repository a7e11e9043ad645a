"""Decisions about sessions: which lane each is, who has it locked, which one is next."""
