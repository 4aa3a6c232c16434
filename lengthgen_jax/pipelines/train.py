"""This is --mode=train: it trains, certifies and finetunes if the config says
so, and evaluates."""

import pathlib

import jax
from jax.flatten_util import ravel_pytree
from ml_collections import ConfigDict

from lengthgen_jax import hosts, rng
from lengthgen_jax.construction import weights
from lengthgen_jax.pipelines import evaluate, finetune, runs, workdir
from lengthgen_jax.training import loop


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Trains and evaluates what a config describes; returns the exit code."""
  training_run = runs.make_run(config, folder)
  finetune.check_config(config)
  initial = initial_parameters(config, training_run)
  workdir.open_workdir(config, folder, "train")
  seeds = ", ".join(map(str, training_run.seeds))
  hosts.print_note(f"training {config.task}, {config.method}, seeds {seeds}")
  loop.train(training_run, initial)
  finetune.certify_and_finetune(config, folder)
  return evaluate.run(config, folder)


def initial_parameters(config: ConfigDict, training_run: loop.Run) -> list:
  """Returns the parameters that each seed starts from, those of config.initial
  plus normal noise; none if every seed draws random ones."""
  section = config.initial
  if section.kind == "random":
    return []
  params = weights.parameters(
    training_run.experiment, section.longest, section.copies
  )
  flat, unravel = ravel_pytree(params)
  keys = [rng.stream(seed, "init") for seed in training_run.seeds]
  noise = [section.noise * jax.random.normal(key, flat.shape) for key in keys]
  return [unravel(flat + x) for x in noise]
