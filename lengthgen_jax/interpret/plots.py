"""Figures of what is inside a model: pure functions of arrays."""

import pathlib

import numpy as np

from lengthgen_jax.drawing import plt, save


def matrices(values, path, title: str, columns=None, rows=None) -> pathlib.Path:
  """A grid of matrices [N, H, T, S], a row of panels per layer.

  Args:
    values: each panel is scaled to its own finite range; -inf stays white.
    path: where the PNG goes.
    title: above all panels.
    columns: labels of the S keys, if few enough to read.
    rows: labels of the T rows.
  """
  layers, heads, height, width = values.shape
  size = min(max(width / 11, 1.3), 4.0)
  figure, axes = plt.subplots(
    layers,
    heads,
    figsize=(size * heads + 0.4, (size * height / width + 0.45) * layers + 0.6),
    squeeze=False,
  )
  for (n, h), axis in np.ndenumerate(axes):
    panel = np.where(np.isfinite(values[n, h]), values[n, h], np.nan)
    axis.imshow(panel, cmap="viridis", aspect="auto", **_range(panel))
    layer = f"layer {n} " if layers > 1 else ""
    axis.set_title(f"{layer}head {h}", fontsize=6, pad=2)
    _labels(axis.set_xticks, columns if n == layers - 1 else None)
    _labels(axis.set_yticks, rows if h == 0 else None)
    axis.spines[:].set_color("0.7")
  figure.suptitle(title, fontsize=9)
  figure.supxlabel("key", fontsize=8)
  figure.supylabel("output row", fontsize=8)
  figure.tight_layout(rect=(0.01, 0.01, 1, 1))
  return save(figure, path)


def _range(panel) -> dict:
  """Color range of one panel; a constant one is drawn in full color."""
  if np.isnan(panel).all():
    return {}
  low, high = np.nanmin(panel), np.nanmax(panel)
  return {"vmin": low - (1.0 if low == high else 0.0), "vmax": high}


def _labels(set_ticks, labels) -> None:
  if labels is None or len(labels) > 45:
    labels = []
  set_ticks(range(len(labels)), labels, fontsize=4)
