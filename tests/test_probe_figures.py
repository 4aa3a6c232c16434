"""Figures of models: labels, scales, and what lies on each other."""

import numpy as np
import pytest
import untrained

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
  labels = figures.labels_by_site(experiment.task, batch)
  rows, keys, source = LABELS[model]
  assert labels["self"].rows == rows.split()
  assert labels["self"].keys == keys.split()
  if source:
    assert labels["cross"].keys == source.split()


def test_heads_share_a_scale_with_zero_in_it():
  """One cell is open in the first head's first row and the last one's last."""
  values = np.full((2, 8, 3, 40), -np.inf)
  values[0, 0, 0, 0], values[1, 7, 2, 39] = 0.5, 0.48
  names = [str(i) for i in range(40)]
  for label, highest in (("bias", 1), ("attention weight", 0.5)):
    figure = figures.matrices(values, "title", names, names[:3], label)
    panel, _ = figure.axes
    titles = [text.get_text() for text in panel.texts]
    assert titles[0] == "layer 0 head 0" and titles[15] == "layer 1 head 7"
    (image,) = panel.images
    assert image.get_clim() == (0, highest)
    mosaic = image.get_array()
    assert mosaic.compressed().tolist() == [0.5, 0.48]
    assert mosaic[-1].compressed().tolist() == [0.48]
