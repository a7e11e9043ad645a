"""The calls about sessions, over HTTP."""
