"""The pipelines: a module with a function `run` for each --mode, and what these
modules share."""
