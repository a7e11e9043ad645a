"""Calls by plain HTTP: their bodies, parameters and answers, and errors about bad ones."""
