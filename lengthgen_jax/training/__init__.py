"""Training: its state, its checkpoints, its loop."""
