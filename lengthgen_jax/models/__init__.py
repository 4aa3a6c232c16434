"""Flax modules: the layers of a transformer, and its two families."""
