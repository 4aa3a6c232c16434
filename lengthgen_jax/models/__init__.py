"""This package holds the flax modules: one attention, one block, two models."""
