"""Flax modules: the layers of a transformer, and the whole of either family."""
