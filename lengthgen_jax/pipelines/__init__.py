"""The pipelines: each --mode of the program has a file with its `run`."""
