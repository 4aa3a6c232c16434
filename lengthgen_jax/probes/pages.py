"""Layout of figures in inches, and the packing of many on one page."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lengthgen_jax.drawing import Canvas, plt

WIDTH = 19.5  # inches of a page of many, unless one of them is wider


class Page(NamedTuple):
  """A figure, or a part of one, that is not drawn yet.

  Attributes:
    name: of the file that it is written to, without a suffix.
    size: (width, height) in inches.
    draw: a function that draws the page on a canvas of that size.
  """

  name: str
  size: tuple[float, float]
  draw: Callable[[Canvas], None]


class Margins(NamedTuple):
  """The margins around a grid of axes and the gaps between them, in inches."""

  left: float
  right: float
  bottom: float
  top: float
  between_columns: float = 0.1
  between_rows: float = 0.1


def size_of(canvas: Canvas) -> tuple[float, float]:
  """Returns the width and height of a canvas in inches."""
  return canvas.bbox.width / canvas.dpi, canvas.bbox.height / canvas.dpi


def grid(
  canvas: Canvas, rows: int, columns: int, margins: Margins
) -> np.ndarray:
  """Creates axes [rows, columns] on a canvas, with these margins."""
  width, height = size_of(canvas)
  left, right, bottom, top, column_gap, row_gap = margins
  axes_width = (width - left - right - column_gap * (columns - 1)) / columns
  axes_height = (height - bottom - top - row_gap * (rows - 1)) / rows
  spacing = {
    "left": left / width,
    "right": 1 - right / width,
    "bottom": bottom / height,
    "top": 1 - top / height,
    "wspace": column_gap / axes_width,
    "hspace": row_gap / axes_height,
  }
  return canvas.subplots(rows, columns, squeeze=False, gridspec_kw=spacing)


def add_texts(
  canvas: Canvas, title: str, x_text: str = "", y_text: str = ""
) -> None:
  """Writes a title above all axes, a text below and a text left of them."""
  width, height = size_of(canvas)
  canvas.suptitle(title, fontsize=9, y=1 - 0.06 / height, va="top")
  canvas.supxlabel(x_text, fontsize=7, y=0.05 / height, va="bottom")
  canvas.supylabel(y_text, fontsize=7, x=0.05 / width, ha="left")


def add_color_bar(
  canvas: Canvas,
  image: plt.cm.ScalarMappable,
  margins: Margins,
  label: str,
) -> None:
  """Draws the color bar of an image in the right margin of a canvas."""
  width, height = size_of(canvas)
  left, bottom = 1 - (margins.right - 0.1) / width, margins.bottom / height
  box = left, bottom, 0.09 / width, 1 - margins.top / height - bottom
  bar = canvas.colorbar(image, cax=canvas.add_axes(box))
  bar.ax.tick_params(labelsize=5)
  bar.set_label(label, fontsize=6)


def set_labels(
  axis: plt.Axes,
  columns: list[str],
  rows: list[str] | None = None,
  fontsize: float = 5,
  rotation: float = 0,
) -> None:
  """Sets a label at every column, and at every row unless `rows` is None."""
  axis.set_xticks(
    range(len(columns)), columns, fontsize=fontsize, rotation=rotation
  )
  if rows is not None:
    axis.set_yticks(range(len(rows)), rows, fontsize=fontsize)
  axis.tick_params(length=1, pad=1)


# Many pages on a single one.


def combined(name: str, pages: list[Page]) -> Page:
  """Returns a page with all pages in their own sizes, placed by `pack_rows`."""
  page_rows = pack_rows(pages, max(WIDTH, *(page.size[0] for page in pages)))
  total_width = max(sum(page.size[0] for page in row) for row in page_rows)
  heights = [max(page.size[1] for page in row) for row in page_rows]

  def draw(canvas: Canvas) -> None:
    row_canvases = split(canvas, heights, axis=0)
    for row, row_canvas in zip(page_rows, row_canvases, strict=True):
      widths = [page.size[0] for page in row]
      cells = split(row_canvas, [*widths, total_width - sum(widths)], axis=1)
      for page, cell in zip(row, cells, strict=False):
        rest = size_of(cell)[1] - page.size[1]
        page.draw(split(cell, [page.size[1], rest], axis=0)[0])

  return Page(name, (total_width, sum(heights)), draw)


def pack_rows(pages: list[Page], width: float) -> list[list[Page]]:
  """Packs pages into rows that are no wider than `width` inches.

  The first page stays first. The others follow in the order of their heights,
  the highest first, each in the first row that has room.
  """
  rows = []
  for page in pages[:1] + sorted(pages[1:], key=lambda page: -page.size[1]):
    for row in rows:
      if sum(other.size[0] for other in row) + page.size[0] <= width:
        row.append(page)
        break
    else:
      rows.append([page])
  return rows


def split(canvas: Canvas, inches: list[float], axis: int) -> list[Canvas]:
  """Returns parts of a canvas, below each other (axis 0) or side by side."""
  shape = [1, 1]
  shape[axis] = len(inches)
  ratios = {("height_ratios", "width_ratios")[axis]: np.maximum(inches, 0.01)}
  parts = canvas.subfigures(*shape, squeeze=False, wspace=0, hspace=0, **ratios)
  return list(parts.flat)
