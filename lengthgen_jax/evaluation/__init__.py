"""This package evaluates a trained model of one seed: its answers, and measures
of them."""
