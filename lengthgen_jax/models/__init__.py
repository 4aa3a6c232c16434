"""Flax modules: one attention, one block, two models."""
