"""This is --mode=abc: interpolate, calibrate, retrain, prune, prove, evaluate.

One workdir holds all stages (workdir.py). A stage whose files are there is
skipped, and one that was interrupted is resumed; only the tests are made again.
"""

import pathlib

from ml_collections import ConfigDict

from lengthgen_jax import hosts
from lengthgen_jax.config import build, fields
from lengthgen_jax.errors import UsageError, check, user_errors
from lengthgen_jax.pipelines import (
  calibrate,
  evaluate,
  finetune,
  runs,
  workdir,
)
from lengthgen_jax.training import loop


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Runs the stages that are not done yet; returns the exit code."""
  check_config(config)
  # Interpolate: a vanilla model of every seed.
  interpolation = runs.make_run(config, folder / "interpolate")
  workdir.open_workdir(config, folder, "abc")
  loop.train(interpolation)
  # Calibrate: the attention of those that interpolate becomes lines.
  models = calibrate.interpolating_models(config, interpolation)
  if not workdir.bias_path(folder).exists():
    calibrate.write_bias(config, models, folder / "calibrate")
  hosts.barrier("calibrated")
  # Retrain: with these lines as the bias, from fresh parameters.
  _, retraining = workdir.retraining(config, folder)
  loop.train(retraining)
  # Prune and prove: lines that nothing needs are closed, the rest is certified,
  # and models that are wrong are trained again on what they are wrong on.
  finetune.certify_and_finetune(config, folder)
  # Evaluate: exact match at every length, beyond those of training too.
  return evaluate.run(config, folder)


def check_config(config: ConfigDict) -> None:
  """Checks that a config is valid in every stage, before any of them starts."""
  first_experiment = build.build(config)
  check(
    config.initial.kind == "random",
    f"initial.kind={config.initial.kind!r} is for --mode=train; with abc,"
    " choose 'random'",
  )
  check(
    config.bias.kind == "none",
    f"bias.kind={config.bias.kind!r}: the first stage of --mode=abc has no"
    " bias; choose 'none', or a preset with the method 'abc'",
  )
  calibrate.check_config(config, first_experiment)
  # The second stage has a bias, whose file `build` does not read.
  second_config = fields.retrain_config(config, config.seeds, "bias.npz")
  try:
    build.build(second_config)
    finetune.check_config(second_config)
  except UsageError as error:  # any other one is a bug, and keeps its traceback
    raise UsageError(f"in the second stage, retrain.*: {error}") from error
  # Each head is retrained with the lines of the same head of the first stage.
  for name in ("kind", "num_heads"):
    first, second = config.model[name], second_config.model[name]
    check(
      first == second,
      f"retrain.model.{name}={second!r}: each head gets the lines of the same"
      f" head of the first stage; choose {first!r}, as there",
    )
  first, second = (
    stage.model.num_decoder_layers for stage in (config, second_config)
  )
  check(
    config.calibration.layers == "last" or second >= first,
    f"retrain.model.num_decoder_layers={second}: each layer gets the lines of"
    f" the same layer of the first stage; choose at least {first}, as many as"
    " there, or calibration.layers='last'",
  )
  with user_errors("abc.example"):
    _, lengths = first_experiment.task.parse(
      config.abc.example or first_experiment.task.usage
    )
  subject = f"abc.example: {max(lengths)} {first_experiment.task.own_unit}"
  first_experiment.width(lengths, subject)
