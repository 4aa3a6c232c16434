"""This package holds Theorem 5.1's construction: weights that sort, and
limits."""
