"""The one file that imports matplotlib."""

import pathlib

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "lengthgen_jax"  # the same names again

from matplotlib import pyplot as plt  # noqa: E402

from lengthgen_jax import hosts  # noqa: E402


def save(figure, path) -> pathlib.Path:
  """Writes a figure as PNG, and as SVG beside it, and forgets it; of several
  hosts the first one writes."""
  path = pathlib.Path(path)
  if hosts.first():
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    vector = path.with_name(f"{path.stem}.svg")
    figure.savefig(vector, bbox_inches="tight", metadata={"Date": None})
  plt.close(figure)
  return path


def grid(canvas, rows: int, columns: int, size, margins, gaps=(0.1, 0.1)):
  """Axes [rows, columns] on a figure or a part of one.

  Args:
    canvas: Figure or SubFigure.
    rows, columns: how many.
    size: (width, height) of the canvas in inches.
    margins: (left, right, bottom, top) in inches.
    gaps: between columns and between rows, in inches.
  """
  (width, height), (left, right, bottom, top) = size, margins
  wide = (width - left - right - gaps[0] * (columns - 1)) / columns
  high = (height - bottom - top - gaps[1] * (rows - 1)) / rows
  place = {
    "left": left / width,
    "right": 1 - right / width,
    "bottom": bottom / height,
    "top": 1 - top / height,
    "wspace": gaps[0] / wide,
    "hspace": gaps[1] / high,
  }
  return canvas.subplots(rows, columns, squeeze=False, gridspec_kw=place)


def title(canvas, size, text: str) -> None:
  """A line above all axes."""
  canvas.suptitle(text, fontsize=9, y=1 - 0.06 / size[1], va="top")


def scale(canvas, size, image, margins, label: str) -> None:
  """A color bar in the right margin."""
  left, right, bottom, top = margins
  high = 1 - (bottom + top) / size[1]
  place = [1 - (right - 0.1) / size[0], bottom / size[1], 0.09 / size[0], high]
  bar = canvas.colorbar(image, cax=canvas.add_axes(place))
  bar.ax.tick_params(labelsize=5)
  bar.set_label(label, fontsize=6)
