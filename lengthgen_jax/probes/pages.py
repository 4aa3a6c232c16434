"""This module holds the data that the figures of probes are drawn from, and
lays out their pages; all sizes are in inches."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from lengthgen_jax.coordinates import Coordinates
from lengthgen_jax.drawing import Canvas, plt
from lengthgen_jax.errors import check
from lengthgen_jax.probes.activations import Observation

COMBINED_WIDTH = 19.5  # most, of a combined page; more if one in it is wider
MAX_TOKENS = 64  # of the longest sequence whose labels can be read
MAX_TOKENS_WITH_ZEROS = 40  # longer sequences are drawn without leading zeros


class FigureInput(NamedTuple):
  """A FigureInput is an input that is drawn, and a model on it.

  Attributes:
    text: the input as one types it; of a random input, the prompt's tokens.
    observation: the model on a batch of this one input.
  """

  text: str
  observation: Observation

  @property
  def rows(self) -> np.ndarray:
    """Returns the indices of the decoder rows that are drawn: those of
    `drawn_tokens` that attend to something."""
    rows = self.drawn_tokens(self.observation.batch.rows)
    sums = [
      weights[0][:, rows].sum(axis=(0, 2))
      for _, _, weights in self.observation.attention()
    ]
    return rows[np.sum(sums, axis=0) > 0]

  def drawn_tokens(self, coordinates: Coordinates) -> np.ndarray:
    """Returns the indices of the tokens that are drawn.

    If a sequence of digits has more than MAX_TOKENS_WITH_ZEROS tokens, leading
    zeros are left out: the digits more than one place above the longest
    operand.
    """
    task = self.observation.task
    segment = np.asarray(coordinates.segment[0])
    left, right = coordinates.left[0, :, 0], coordinates.right[0, :, 0]
    is_token = segment >= 0
    if is_token.sum() <= MAX_TOKENS_WITH_ZEROS or not task.of_digits:
      return np.flatnonzero(is_token)
    is_target = segment == task.target_segment
    # How many tokens of a segment have the same place. (A grid has no strides.)
    strides = np.ones(len(task.segments) + 2, int)
    strides[: len(task.strides)] = np.maximum(task.strides, 1)
    place = np.where(is_target, left, right // strides[segment])
    # Where numbers are padded, the last token of the output is a mark, and
    # other segments begin with one, or with two if the digits of two operands
    # alternate.
    is_mark = np.where(is_target, right < 1, left < strides[segment])
    is_zero = (place > self.observation.length) & ~is_mark
    return np.flatnonzero(is_token & ~is_zero)

  def check_length(self) -> None:
    """Raises a UsageError if the input is longer than a figure can show."""
    batch = self.observation.batch
    sequences = [batch.keys, batch.source_keys]
    longest = max(len(self.drawn_tokens(keys)) for keys in sequences if keys)
    check(
      longest <= MAX_TOKENS,
      f"{self.text!r} makes a sequence of {longest} tokens, and figures show at"
      f" most {MAX_TOKENS}: choose a shorter one in probe.inputs, and"
      " probe.random_inputs=0 if it is a random one",
    )


@dataclasses.dataclass(frozen=True)
class FigureData:
  """FigureData is everything that the figures of a model are drawn from.

  Attributes:
    title: says which model it is.
    inputs: the single inputs that are drawn.
    rows: the rows that all probes measured now, of all seeds.
    seed: the seed of the model whose inputs and heads are drawn.
    labels: a label for each position of the "source" (if there is one), of the
      decoder's "inputs" and of the scored "outputs".
    summary: lines of text about all rows, which the overview shows.
    logs: for each stage whose training probes watched, by name, the rows of its
      metrics.jsonl and of these probes.
  """

  title: str
  inputs: list[FigureInput]
  rows: list[dict]
  seed: int
  labels: dict[str, list[str]]
  summary: list[str]
  logs: dict[str, tuple[list[dict], list[dict]]]

  def named_inputs(self) -> Iterator[tuple[str, FigureInput]]:
    """Yields (prefix of the pages' names, input) for each input."""
    for number, figure_input in enumerate(self.inputs, start=1):
      yield f"input{number}_" if len(self.inputs) > 1 else "", figure_input


class Page(NamedTuple):
  """A Page is a figure, or a part of one, that is not drawn yet.

  Attributes:
    name: the name of its file, without a suffix.
    size: (width, height) in inches.
    draw: a function that draws the page on a canvas of that size.
  """

  name: str
  size: tuple[float, float]
  draw: Callable[[Canvas], None]


class Margins(NamedTuple):
  """Margins are those around a grid of axes and the gaps between them."""

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
  """Returns new axes [rows, columns] on a canvas, with these margins."""
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
  gap, bar_width = 0.1, 0.09  # inches
  bar_height = height - margins.bottom - margins.top
  left = width - margins.right + gap
  # Matplotlib takes fractions of the canvas.
  bar_axes = canvas.add_axes(
    (
      left / width,
      margins.bottom / height,
      bar_width / width,
      bar_height / height,
    )
  )
  bar = canvas.colorbar(image, cax=bar_axes)
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


# Combined pages.


def combined(name: str, pages: list[Page]) -> Page:
  """Returns a page with all pages in their own sizes, placed by `pack_rows`."""
  page_rows = pack_rows(
    pages, max(COMBINED_WIDTH, *(page.size[0] for page in pages))
  )
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
  """Returns parts of a canvas of these heights, one below the other (axis 0),
  or of these widths, side by side (axis 1)."""
  shape = [1, 1]
  shape[axis] = len(inches)
  ratios = {("height_ratios", "width_ratios")[axis]: np.maximum(inches, 0.01)}
  parts = canvas.subfigures(*shape, squeeze=False, wspace=0, hspace=0, **ratios)
  return list(parts.flat)
