"""Trained models that come with the package, each with its proof."""
