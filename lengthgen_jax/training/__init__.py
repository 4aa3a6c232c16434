"""This package trains models: state, checkpoints, loop, and devices."""
