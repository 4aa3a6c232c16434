"""This package has the Flax modules: layers, and the transformer of both
families."""
