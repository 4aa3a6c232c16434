"""Timing: what a program costs, what a device can do, and what came of it."""
