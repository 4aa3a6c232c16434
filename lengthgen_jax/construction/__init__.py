"""This package holds the construction of Theorem 5.1, and what it needs."""
