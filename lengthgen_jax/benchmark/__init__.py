"""Timing: what a program costs, what a device can do, what came of it."""
