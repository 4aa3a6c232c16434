"""Certificates: whether a model is right at every length, by all cases."""
