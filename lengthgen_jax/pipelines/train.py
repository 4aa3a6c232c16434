"""This is --mode=train: train, practice if the config says so, evaluate."""

import pathlib

from ml_collections import ConfigDict

from lengthgen_jax import memory
from lengthgen_jax.pipelines import evaluate, practice, runs, workdir
from lengthgen_jax.training import loop


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Trains and evaluates what a config describes; returns the exit code."""
  practice.check_config(config)
  training_run = runs.make_run(config, folder, runs.print_note)
  initial = runs.initial_parameters(config, training_run)
  memory.check_training(training_run)
  evaluate.check_memory(config, training_run)
  workdir.open_workdir(config, folder, "train")
  loop.train(training_run, initial)
  practice.certify_and_practice(config, folder)
  return evaluate.run(config, folder)
