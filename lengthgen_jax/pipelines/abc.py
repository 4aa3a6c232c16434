"""This is --mode=abc: interpolate, calibrate, retrain, certify and evaluate.

One workdir W holds all stages. A stage that is done is skipped, and one that
was interrupted is resumed. W/interpolate holds a vanilla model, W/calibrate its
attention as lines, and W/retrain a fresh model with those lines as its bias;
W/certify_1 and so on hold the training on inputs that a certificate found
wrong.
"""

import pathlib

import jax
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax import hosts, memory, plots
from lengthgen_jax.config import build, stages
from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import (
  attention_statistics,
  calibrate,
  counterexamples,
  evaluate,
  workdir,
)
from lengthgen_jax.results import records
from lengthgen_jax.tasks.pack import Batch
from lengthgen_jax.training import loop


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Runs the stages that are not done yet; returns the exit code.

  Raises:
    UsageError: No seed interpolated, or no line passed.
  """
  check_config(config)
  interpolation = workdir.prepare(
    config, folder / "interpolate", workdir.report
  )
  memory.check_training(interpolation)
  evaluate.check_memory(
    config, interpolation, longest=config.abc.vanilla_longest
  )
  workdir.open_workdir(config, folder, "abc")
  loop.train(interpolation)
  models = calibrate.interpolated(config, interpolation)
  if not workdir.bias_path(folder).exists():
    calibrate.calibrate(config, models, folder / "calibrate")
  hosts.barrier("calibrated")
  _, retraining = workdir.retrained(config, folder)
  initial = None
  if config.retrain.start == "interpolated":
    initial = [
      model.params for model in models if model.seed in retraining.seeds
    ]
  loop.train(retraining, initial)
  counterexamples.run(config.practice.rounds, config, folder)
  return evaluate.run(config, folder)


def check_config(config: ConfigDict) -> None:
  """Checks a config for every mistake that a later stage would run into.

  Raises:
    UsageError: There is such a mistake.
  """
  first_experiment = build.build(config)
  check(
    config.initial.kind == "random",
    f"initial.kind={config.initial.kind!r} is for --mode=train; with abc,"
    " choose 'random'",
  )
  calibrate.check_config(config, first_experiment)
  second_config = stages.retrain_config(config, config.seeds, None)
  try:
    second_experiment = build.build(second_config)
  except UsageError as error:
    raise UsageError(f"in the second stage, retrain.*: {error}") from error
  layer_fields = ["num_decoder_layers"] * (config.calibration.layers == "each")
  for name in ("kind", "num_heads", *layer_fields):
    before, after = config.model[name], second_config.model[name]
    check(
      before == after or name in layer_fields and before == 1,
      f"retrain.model.{name}={after!r}: lines go from head to head, so it must"
      f" be as in the first stage, {before!r}",
    )
  if config.retrain.start == "interpolated":
    check(
      first_experiment.model == second_experiment.model,
      "retrain.start='interpolated' needs the same model and positions in"
      " retrain.* as in the first stage; make them equal, or choose 'fresh'",
    )
    check(
      second_config.train.restarts == 0,
      "retrain.start='interpolated' has one start for each seed, so none can"
      " start again: set retrain.train.restarts=0",
    )
  counterexamples.check_config(second_config, "retrain.")
  try:
    _, lengths = first_experiment.task.parse(
      config.abc.example or first_experiment.task.usage
    )
  except ValueError as error:
    raise UsageError(f"abc.example: {error}") from error
  subject = f"abc.example: {max(lengths)} {first_experiment.task.unit}"
  first_experiment.width(lengths, subject, "choose one of at most {}")


def seconds(log: pathlib.Path) -> float:
  """Returns the seconds that the gradient steps of a training took.

  Args:
    log: The metrics.jsonl of the training, with the rows of all calls of the
      program that it needed.
  """
  return sum(
    {row["step"]: row["seconds"] for row in records.read(log)}.values()
  )


def training_times(folder: pathlib.Path) -> str:
  """Says how many seconds both trainings of a workdir took, and their ratio.

  The seconds are those of all seeds together.
  """
  interpolation, retraining = (
    seconds(folder / stage / "metrics.jsonl")
    for stage in ("interpolate", "retrain")
  )
  return (
    f"training: interpolation {interpolation:.0f} s, retraining"
    f" {retraining:.0f} s ({retraining / interpolation:.2f} of it),"
    " compilation included"
  )


def draw(
  config: ConfigDict,
  folder: pathlib.Path,
  interpolation: loop.Run,
  retraining: loop.Run,
) -> list[pathlib.Path]:
  """Draws the calibrated biases, the mean attention and one input's attention.

  Args:
    config: The config of the workdir.
    folder: The workdir.
    interpolation: The training of the vanilla models.
    retraining: The training with the calibrated bias.

  Returns:
    The paths of the figures.
  """
  model, paths = workdir.load(retraining, "last")[0], []
  width, length = attention_statistics.conditions(
    config.calibration, interpolation.experiment
  )[-1]
  batch = attention_statistics.samples(
    interpolation.experiment, model.seed, width, length, 0, 1
  )
  paths += bias_figures(model, batch, folder / "figures", f"W={width}")
  attention = np.load(folder / "calibrate" / "attention.npz")
  for site in attention_statistics.sites(interpolation.experiment):
    keys = batch.keys if site == "self" else batch.source_keys
    paths.append(
      plots.matrices(
        attention[f"{site}_{model.seed}"],
        folder / "figures" / f"attention_mean_{site}.png",
        f"mean {site}-attention {config.calibration.quantity} of the"
        f" interpolated model, seed {model.seed}",
        plots.labels(interpolation.experiment, site, keys),
      )
    )
  return paths + attention_figures(config, interpolation, folder / "figures")


def bias_figures(
  model: Model, batch: Batch, folder: pathlib.Path, condition: str
) -> list[pathlib.Path]:
  """Draws the bias of a model's scaffold at the rows and keys of a batch.

  Args:
    model: A trained model.
    batch: A batch of its main task.
    folder: Where the figures go.
    condition: The width or length of the batch, for the titles.

  Returns:
    The paths of the figures, one for each attention site with a bias.
  """
  biases = jax.jit(model.experiment.sites)(model.scaffold, batch).biases
  return [
    plots.matrices(
      np.asarray(biases[site].values)[:, 0],
      folder / f"bias_{site}.png",
      f"{site}-attention bias, seed {model.seed}, {condition} (white: closed;"
      " each head its own scale)",
      plots.labels(
        model.experiment,
        site,
        batch.keys if site == "self" else batch.source_keys,
      ),
    )
    for site in attention_statistics.sites(model.experiment)
    if site in model.scaffold
  ]


def window_figures(
  model: Model, length: int, folder: pathlib.Path
) -> list[pathlib.Path]:
  """Draws the bias of a windowed model (ABS paper, figure 3) at a length."""
  experiment = model.experiment
  width, units = experiment.test_width(length), experiment.task.units(length)
  batch = attention_statistics.samples(
    experiment, model.seed, width, units, 0, 1
  )
  condition = f"{length} {experiment.task.unit}"
  return bias_figures(model, batch, folder / "figures", condition)


def attention_figures(
  config: ConfigDict, interpolation: loop.Run, folder: pathlib.Path
) -> list[pathlib.Path]:
  """Draws the attention of a vanilla model's last decoder layer to abc.example.

  Returns:
    The paths of the heat maps, one for each attention site.
  """
  task = interpolation.experiment.task
  text = config.abc.example or task.usage
  batch, layers = workdir.load(interpolation, "best")[0].attention(text)
  columns = {"self": batch.inputs, "cross": batch.source}
  return [
    plots.matrices(
      weights[None],
      folder / f"attention_example_{site}.png",
      f"{site}-attention of the vanilla model's last decoder layer on {text}",
      task.symbols(columns[site][0]),
      task.symbols(batch.target[0]),
    )
    for site, weights in layers[-1].items()
  ]
