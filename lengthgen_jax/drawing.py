"""The one file that imports matplotlib."""

import pathlib

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402


def save(figure, path) -> pathlib.Path:
  """Writes a figure as PNG and forgets it."""
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=150, bbox_inches="tight")
  plt.close(figure)
  return path
