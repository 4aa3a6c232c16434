"""Layout of figures, and their PNGs; no other file imports matplotlib."""

import math
import pathlib
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.transforms import offset_copy

from lengthgen_jax import hosts

__all__ = ["WIDTH", "offset_copy", "panels", "plt", "save"]

WIDTH = 14  # inches of a figure: 1400 pixels

STYLE = {
  "savefig.dpi": 100,
  "font.size": 8,
  "figure.titlesize": 10,
  "axes.titlesize": 8,
  "axes.labelsize": 8,
  "xtick.labelsize": 7,
  "ytick.labelsize": 7,
  "legend.frameon": False,
  "image.aspect": "auto",
  "lines.linewidth": 1,
  "lines.markersize": 5,
  "markers.fillstyle": "none",  # those below are seen
}
plt.switch_backend("Agg")
plt.rcParams.update(STYLE)


def panels(
  count: int,
  width: float,
  height: float,
  columns: int = 0,
  margin: float = 1,
  **options: Any,
) -> tuple[plt.Figure, list[plt.Axes]]:
  """Returns a new figure and its panels row by row: each of `width` by `height`
  inches with its labels, at most `columns` side by side (0: as many as there is
  room for); the figure is wider by `margin`. Options are those of
  plt.subplots."""
  rows = math.ceil(count / (columns or max(int((WIDTH - 1) / width), 1)))
  columns = min(columns, count) or math.ceil(count / rows)
  figure, axes = plt.subplots(
    rows,
    columns,
    figsize=(margin + width * columns, 1 + height * rows),
    squeeze=False,
    layout="constrained",
    **options,
  )
  for axis in axes.flat[count:]:
    axis.remove()
  return figure, list(axes.flat[:count])


def save(figure: plt.Figure, path: pathlib.Path) -> pathlib.Path:
  """Writes a figure as PNG, on the first host alone, and closes it."""
  if hosts.is_primary():
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
  plt.close(figure)
  return path
