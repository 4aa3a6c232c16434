"""--mode=train: train, then evaluate."""

import pathlib

from ml_collections import ConfigDict

from lengthgen_jax.runs import INTERRUPTED, evaluate, workdir
from lengthgen_jax.training import loop
from lengthgen_jax.training.progress import Interrupted


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Trains the workdir's run; returns the exit code."""
  made = workdir.prepare(config, folder, workdir.report)
  workdir.open_workdir(config, folder, "train")
  try:
    loop.train(made)
  except Interrupted as stop:
    workdir.report(str(stop))
    return INTERRUPTED
  return evaluate.run(config, folder)
