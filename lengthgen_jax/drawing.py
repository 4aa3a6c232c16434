"""Figures as PNGs: no other file imports matplotlib."""

import pathlib

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.figure import Figure, SubFigure  # noqa: E402

from lengthgen_jax import hosts  # noqa: E402

plt.rcParams.update({"savefig.dpi": 150, "savefig.bbox": "tight"})

Canvas = Figure | SubFigure


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
    figure.savefig(path)
  plt.close(figure)
  return path
