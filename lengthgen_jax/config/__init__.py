"""This package checks every field of a config, builds from it, and saves it."""
