"""Producers and consumers as processes of their own, with journals: what demo and chaos disturb."""
