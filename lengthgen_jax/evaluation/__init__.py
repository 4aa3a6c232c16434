"""Evaluation of a trained model of one seed: its answers and their measures."""
