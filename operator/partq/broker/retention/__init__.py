"""Removal of stored messages: trimming, expiry, and the archive of audit records."""
