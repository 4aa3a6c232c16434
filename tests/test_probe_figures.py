"""Figures of models: labels, scales, and what lies on each other."""

import numpy as np
import pytest
import untrained

from lengthgen_jax.pipelines import run_figures
from lengthgen_jax.probes import figures

LABELS = {
  ("addition", "encoder_decoder", "12+34"): (
    "y1 y2 y3 &",
    "$ y1 y2 y3",
    "$ a3 a2 a1 + b3 b2 b1",
  ),
  ("addition", "decoder_only", "12+34"): (
    "a3 a2 a1 + b3 b2 b1 = y1 y2 y3 &",
    "$ a3 a2 a1 + b3 b2 b1 = y1 y2 y3",
    None,
  ),
  ("sort", "decoder_only", "3 1"): ("x2 ⊥ y1 y2", "x1 x2 ⊥ y1", None),
}


@pytest.fixture(autouse=True)
def closed():
  yield
  figures.plt.close("all")


@pytest.mark.parametrize("model", LABELS)
def test_rows_say_and_keys_hold(model):
  *of_model, text = model
  experiment = untrained.experiment(*of_model)
  batch = untrained.typed(experiment, text, width=3)
  labels = run_figures.labels_by_site(experiment.task, batch)
  rows, keys, source = LABELS[model]
  assert labels["self"].rows == rows.split()
  assert labels["self"].keys == keys.split()
  if source:
    assert labels["cross"].keys == source.split()


def test_heads_share_a_scale_with_zero_in_it():
  values = np.full((2, 8, 3, 40), -np.inf)
  values[0, 0, 0, 0], values[1, 7, 2, 39] = 0.5, 0.48
  names = [str(i) for i in range(40)]
  for label in ("bias", "attention weight"):
    figure = figures.matrices(values, "title", names, names[:3], label)
    *panels, bar = figure.axes
    assert len(panels) == 16 and bar.get_ylabel() == label
    images = [panel.images[0] for panel in panels]
    assert len({image.get_clim() for image in images}) == 1
    low, high = images[0].get_clim()
    assert low == 0 and high == (1 if label == "bias" else 0.5)
    colors = [images[i].to_rgba(x) for i, x in ((0, 0.5), (15, 0.48))]
    assert np.abs(np.subtract(*colors)).max() < 0.1
    assert np.ma.getmaskarray(images[0].get_array()).sum() == 3 * 40 - 1
