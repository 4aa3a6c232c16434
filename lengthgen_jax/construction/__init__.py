"""This package has Theorem 5.1 of the task hinting paper: weights that sort."""
