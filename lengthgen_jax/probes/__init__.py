"""Probes measure and draw what happens inside a trained model."""
