"""Trained models that come with the package, most of them with a proof."""
