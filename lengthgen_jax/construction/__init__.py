"""Theorem 5.1 as weights that sort, and what they need."""
