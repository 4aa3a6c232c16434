"""What each --mode does with a config and a workdir: one file per mode."""

import pathlib

from ml_collections import ConfigDict

INTERRUPTED = 143  # exit code after SIGTERM


def run(
  mode: str, config: ConfigDict | None, workdir: pathlib.Path, source
) -> int:
  """Runs one mode and returns the exit code.

  Args:
    mode: a name in main.MODES.
    config: the whole config.
    workdir: of the run.
    source: predict: the name of a file, None for standard input.

  Raises:
    UsageError: one line for the user.
  """
  from lengthgen_jax.runs import (
    abc,
    calibrate,
    evaluate,
    predict,
    report,
    train,
  )

  modes = {
    "train": lambda: train.run(config, workdir),
    "abc": lambda: abc.run(config, workdir),
    "evaluate": lambda: evaluate.run(config, workdir),
    "calibrate": lambda: calibrate.run(config, workdir),
    "predict": lambda: predict.run(config, workdir, source),
    "report": lambda: report.run(workdir),
  }
  return modes[mode]()
