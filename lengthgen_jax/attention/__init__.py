"""This package holds biased attention: kernels, biases as lines, and
positions."""
