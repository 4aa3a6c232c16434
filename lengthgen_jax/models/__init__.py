"""This package has the Flax modules: layers, and the transformer, decoder-only
or with an encoder."""
