"""What each --mode does with a config and a workdir: one file per mode."""

INTERRUPTED = 143  # exit code after SIGTERM
