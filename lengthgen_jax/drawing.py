"""Axes, titles and color bars: no other file imports matplotlib."""

import pathlib

import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402

from lengthgen_jax import hosts  # noqa: E402


def save(figure: plt.Figure, path: pathlib.Path | str) -> pathlib.Path:
  """Writes a figure as PNG and closes it.

  Of several hosts only the first one writes.

  Args:
    figure: it is closed on every host.
    path: where the PNG goes.

  Returns:
    The path of the PNG.
  """
  path = pathlib.Path(path)
  if hosts.is_primary():
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")
  plt.close(figure)
  return path


def grid(
  canvas: plt.FigureBase,
  rows: int,
  columns: int,
  size: tuple[float, float],
  margins: tuple[float, float, float, float],
  gaps: tuple[float, float] = (0.1, 0.1),
) -> np.ndarray:
  """Makes axes [rows, columns] on a figure or on a part of one.

  Args:
    canvas: Figure or SubFigure.
    rows, columns: how many axes there are in each direction.
    size: (width, height) of the canvas in inches.
    margins: (left, right, bottom, top) in inches.
    gaps: (between columns, between rows) in inches.

  Returns:
    An array [rows, columns] of axes.
  """
  (width, height), (left, right, bottom, top) = size, margins
  cell_width = (width - left - right - gaps[0] * (columns - 1)) / columns
  cell_height = (height - bottom - top - gaps[1] * (rows - 1)) / rows
  spacing = {
    "left": left / width,
    "right": 1 - right / width,
    "bottom": bottom / height,
    "top": 1 - top / height,
    "wspace": gaps[0] / cell_width,
    "hspace": gaps[1] / cell_height,
  }
  return canvas.subplots(rows, columns, squeeze=False, gridspec_kw=spacing)


def title(canvas: plt.FigureBase, size: tuple[float, float], text: str) -> None:
  """Writes a title above all axes of a canvas of `size` inches."""
  canvas.suptitle(text, fontsize=9, y=1 - 0.06 / size[1], va="top")


def scale(
  canvas: plt.FigureBase,
  size: tuple[float, float],
  image: matplotlib.image.AxesImage,
  margins: tuple[float, float, float, float],
  label: str,
) -> None:
  """Draws the color bar of an image in the right margin of a canvas.

  Args:
    canvas: Figure or SubFigure.
    size: (width, height) of the canvas in inches.
    image: what the colors are of.
    margins: (left, right, bottom, top) in inches.
    label: stands beside the bar.
  """
  left, right, bottom, top = margins
  height = 1 - (bottom + top) / size[1]
  box = (1 - (right - 0.1) / size[0], bottom / size[1], 0.09 / size[0], height)
  bar = canvas.colorbar(image, cax=canvas.add_axes(box))
  bar.ax.tick_params(labelsize=5)
  bar.set_label(label, fontsize=6)
