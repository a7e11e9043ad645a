"""Engines: what reads an archive and feeds the judge."""
