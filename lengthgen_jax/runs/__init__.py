"""What each --mode does with a config and a workdir: one file per mode."""
