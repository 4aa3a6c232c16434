"""Probes: what a trained model does inside, measured and drawn."""
