"""Benchmarks, which time this program on the device at hand."""
