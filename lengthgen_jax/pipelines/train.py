"""This is --mode=train: it trains, certifies and finetunes if the config says
so, and evaluates."""

import pathlib

import jax
from jax.flatten_util import ravel_pytree
from ml_collections import ConfigDict

from lengthgen_jax import rng
from lengthgen_jax.construction import weights
from lengthgen_jax.pipelines import evaluate, finetune, runs, workdir
from lengthgen_jax.training import loop


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Trains and evaluates what a config describes; returns the exit code.

  Args:
    config: the whole config of the run.
    folder: the workdir.

  Raises:
    UsageError: a field is not valid; or the workdir is another run's, cannot
      be written or has a damaged file.
    Interrupted: SIGTERM or SIGINT came and the run stopped; the same command,
      given again, resumes it.
  """
  training_run = runs.make_run(config, folder)
  finetune.check_config(config)
  initial = initial_parameters(config, training_run)
  workdir.open_workdir(config, folder, "train")
  runs.print_closed_rows(training_run)
  loop.train(training_run, initial)
  finetune.certify_and_finetune(config, folder)
  return evaluate.run(config, folder)


def initial_parameters(
  config: ConfigDict, training_run: loop.Run
) -> list | None:
  """Returns the parameters that each seed starts from.

  Returns:
    A pytree for each seed; None if every seed draws random parameters.

  Raises:
    UsageError: the model cannot have the parameters that config.initial names.
  """
  section = config.initial
  if section.kind == "random":
    return None
  params = weights.parameters(
    training_run.experiment, section.longest, section.copies
  )
  return [add_noise(params, seed, section.noise) for seed in training_run.seeds]


def add_noise(params: dict, seed: int, noise: float) -> dict:
  """Returns parameters plus normal noise.

  Args:
    params: a pytree of parameters.
    seed: the seed of the run, from which the noise is drawn.
    noise: the standard deviation.
  """
  flat, unravel = ravel_pytree(params)
  key = rng.stream(seed, "init")
  return unravel(flat + noise * jax.random.normal(key, flat.shape))
