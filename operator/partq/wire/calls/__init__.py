"""Calls by plain HTTP: their bodies, parameters and answers, and what is told of bad ones."""
