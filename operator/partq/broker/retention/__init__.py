"""Removal of stored messages: trimming and expiry; what waits for the audit's archive."""
