"""What each --mode does with a config and a workdir: a file for each mode."""
