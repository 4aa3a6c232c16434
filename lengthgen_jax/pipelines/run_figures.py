"""Figures of what a calibration found."""

import pathlib

import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax.drawing import save
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import attention_statistics, runs
from lengthgen_jax.probes import figures
from lengthgen_jax.probes.activations import Observation


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
  paths = figures.draw_biases(model, batch, folder / "figures")
  attention = np.load(folder / "calibrate" / "attention.npz")
  for site, labels in figures.labels_by_site(experiment.task, batch).items():
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
