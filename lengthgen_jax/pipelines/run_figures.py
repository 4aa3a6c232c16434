"""Figures of a run: its biases and attention, and what its stages took."""

import pathlib

import jax
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax import plots
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import attention_statistics, workdir
from lengthgen_jax.results import records
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.training import loop


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
  condition = attention_statistics.conditions(
    config.calibration, interpolation.experiment
  )[-1]
  batch = attention_statistics.sample_batch(
    interpolation.experiment, model.seed, condition, 0, 1
  )
  paths += bias_figures(
    model, batch, folder / "figures", f"W={condition.width}"
  )
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
  shown = attention_statistics.Condition(width, units)
  batch = attention_statistics.sample_batch(experiment, model.seed, shown, 0, 1)
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
