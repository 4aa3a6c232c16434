"""This module writes figures as PNGs; no other file imports matplotlib."""

import pathlib

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.figure import Figure, SubFigure  # noqa: E402

from lengthgen_jax import hosts  # noqa: E402

plt.rcParams.update({"savefig.dpi": 150, "savefig.bbox": "tight"})

Canvas = Figure | SubFigure  # a figure, or a part of one


def save(figure: plt.Figure, path: pathlib.Path | str) -> pathlib.Path:
  """Writes a figure as PNG and closes it.

  Of several hosts only the first one writes.

  Args:
    figure: the figure, which is closed on every host.
    path: where the PNG is written; missing folders are made.

  Returns:
    The path of the PNG.
  """
  path = pathlib.Path(path)
  if hosts.is_primary():
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
  plt.close(figure)
  return path
