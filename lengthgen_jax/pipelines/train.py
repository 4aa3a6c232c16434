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
  made = workdir.prepare(config, folder, workdir.report)
  initial = initial_parameters(config, made)
  memory.check_training(made)
  evaluate.check_memory(config, made)
  workdir.open_workdir(config, folder, "train")
  loop.train(made, initial)
  counterexamples.run(config.practice.rounds, config, folder)
  return evaluate.run(config, folder)


def initial_parameters(config: ConfigDict, made: loop.Run) -> list | None:
  """What each seed starts from; None for random parameters of its own.

  Raises:
    UsageError: the model is not one that can start from there.
  """
  own = config.initial
  if own.kind == "random":
    return None
  params = weights.parameters(made.experiment, own.longest, own.copies)
  return [noisy(params, seed, own.noise) for seed in made.seeds]


def noisy(params, seed: int, noise: float):
  """Parameters with normal noise of a standard deviation, a seed's own."""
  flat, restored = ravel_pytree(params)
  key = rng.stream(seed, "init")
  return restored(flat + noise * jax.random.normal(key, flat.shape))
