"""Benchmarks time programs and estimate what they cost on a device."""
