"""--mode=train: train, then evaluate."""

import pathlib

from ml_collections import ConfigDict

from lengthgen_jax.runs import evaluate, workdir
from lengthgen_jax.training import loop


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Trains the workdir's run; returns the exit code."""
  made = workdir.prepare(config, folder, workdir.report)
  workdir.open_workdir(config, folder, "train")
  loop.train(made)
  return evaluate.run(config, folder)
