"""--mode=train: train, practice if that is asked for, evaluate."""

import pathlib

import jax
from jax.flatten_util import ravel_pytree
from ml_collections import ConfigDict

from lengthgen_jax import memory, rng
from lengthgen_jax.construction import weights
from lengthgen_jax.pipelines import counterexamples, evaluate, workdir
from lengthgen_jax.training import loop


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Trains the workdir's run; returns the exit code."""
  counterexamples.check_config(config)
  training_run = workdir.prepare(config, folder, workdir.report)
  initial = initial_parameters(config, training_run)
  memory.check_training(training_run)
  evaluate.check_memory(config, training_run)
  workdir.open_workdir(config, folder, "train")
  loop.train(training_run, initial)
  counterexamples.run(config.practice.rounds, config, folder)
  return evaluate.run(config, folder)


def initial_parameters(
  config: ConfigDict, training_run: loop.Run
) -> list | None:
  """What each seed starts from; None for random parameters of its own.

  Raises:
    UsageError: the model is not one that can start from there.
  """
  section = config.initial
  if section.kind == "random":
    return None
  params = weights.parameters(
    training_run.experiment, section.longest, section.copies
  )
  return [noisy(params, seed, section.noise) for seed in training_run.seeds]


def noisy(params, seed: int, noise: float):
  """Parameters with normal noise of a standard deviation, a seed's own."""
  flat, unravel = ravel_pytree(params)
  key = rng.stream(seed, "init")
  return unravel(flat + noise * jax.random.normal(key, flat.shape))
