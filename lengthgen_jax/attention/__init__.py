"""Biased attention: kernels, biases as lines, positions."""
