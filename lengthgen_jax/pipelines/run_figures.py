"""Figures of a run's biases and attention."""

import pathlib
from typing import NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax.drawing import save
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import attention_statistics, runs
from lengthgen_jax.probes import figures
from lengthgen_jax.probes.activations import Observation
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.tasks.task import Task


def draw_calibration(
  config: ConfigDict, folder: pathlib.Path, model: Model
) -> list[pathlib.Path]:
  """Draws the calibrated biases and the mean attention of the first retrained
  seed, `model`, and the attention of the first vanilla one to one input, in its
  last decoder layer; returns the paths. The config is that of the workdir."""
  interpolation = runs.make_run(config, folder / "interpolate")
  experiment, section = interpolation.experiment, config.calibration
  *_, condition = attention_statistics.conditions(section.lengths, experiment)
  batch = attention_statistics.sample_batch(
    experiment, model.seed, condition, condition.width, 0, 1
  )
  paths = draw_biases(model, batch, folder / "figures")
  attention = np.load(folder / "calibrate" / "attention.npz")
  for site, labels in labels_by_site(experiment.task, batch).items():
    # The arrays are padded to the widest condition; the padding comes last.
    shape = tuple(slice(len(x)) for x in (labels.rows, labels.keys))
    figure = figures.matrices(
      attention[f"{site}_{model.seed}"][..., *shape],
      f"mean {site}-attention of the interpolated model, seed {model.seed}",
      labels.keys,
      labels.rows,
      label=f"mean attention {section.quantity.removesuffix('s')}",
    )
    path = folder / "figures" / f"attention_mean_{site}.png"
    paths.append(save(figure, path))
  text = config.abc.example or experiment.task.usage
  vanilla = runs.load(interpolation, "best")[0]
  observation = Observation(vanilla, vanilla.text_batch(text), 1, 0)
  title = f"{text}, vanilla model, last layer"
  for site, figure in figures.attention_on(observation, title, slice(-1, None)):
    path = folder / "figures" / f"attention_example_{site}.png"
    paths.append(save(figure, path))
  return paths


def draw_window(model: Model, folder: pathlib.Path) -> list[pathlib.Path]:
  """Draws the bias of a model with a window at the longest length of its
  training (ABS paper, figure 3); returns the paths."""
  experiment, length = model.experiment, model.experiment.train_length
  width, units = experiment.test_width(length), experiment.task.units(length)
  condition = attention_statistics.Condition(width, units)
  batch = attention_statistics.sample_batch(
    experiment, model.seed, condition, width, 0, 1
  )
  return draw_biases(model, batch, folder / "figures")


def draw_biases(
  model: Model, batch: Batch, folder: pathlib.Path
) -> list[pathlib.Path]:
  """Draws the bias of a model's scaffold at the rows and keys of a batch;
  returns the path of a figure for each decoder site with a bias."""
  biases = jax.jit(model.experiment.site_inputs)(model.scaffold, batch).biases
  return [
    save(
      figures.matrices(
        np.asarray(biases[site].values)[:, 0],
        f"{site}-attention bias, seed {model.seed} (white: closed)",
        labels.keys,
        labels.rows,
        label="bias",
      ),
      folder / f"bias_{site}.png",
    )
    for site, labels in labels_by_site(model.experiment.task, batch).items()
    if site in model.scaffold
  ]


class Labels(NamedTuple):
  """Labels name each row and key of an attention site."""

  rows: list[str]
  keys: list[str]


def labels_by_site(task: Task, batch: Batch) -> dict[str, Labels]:
  """Returns the labels of the rows and keys of a batch's first example, at each
  attention site of the decoder."""
  label = lambda at, ids: figures.position_labels(task, at, np.asarray(ids)[0])
  rows = label(batch.rows, batch.target)
  labels = {"self": Labels(rows, label(batch.keys, batch.inputs))}
  if batch.source_keys is not None:
    labels["cross"] = Labels(rows, label(batch.source_keys, batch.source))
  return labels
