"""Benchmarks time this program on the device at hand."""
