"""This package decides by all cases whether a model is right at every
length."""
