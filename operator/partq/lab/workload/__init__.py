"""Producers and consumers as separate processes, with journals: what demo and chaos disturb."""
