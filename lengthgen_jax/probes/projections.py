"""Charts of residuals in a model's own two bases, and of the bases.

They follow the task hinting paper, section 4 and figure 4.14.
"""

import numpy as np

from lengthgen_jax.drawing import grid, plt, scale, title
from lengthgen_jax.probes.activations import PLACES, Seen, angles, tokens
from lengthgen_jax.probes.attention_maps import Input, ticks

ROWS = 12  # positions of a page
BASES = {"encoder": "embedding rows", "decoder": "output columns"}
# (step, tokens): the step between the ticks of at most so many tokens.
TICKS = ((1, 20), (2, 40), (5, 100))
HELD, WANTED, BOTH = "tab:orange", "tab:green", "tab:purple"
LEGEND = "orange: the token it holds; green: the one it must say; purple: both"


def positions_size(example: Input, rows: int) -> tuple[float, float]:
  """Returns the size in inches of the chart of `positions`, of so many rows."""
  return 0.8 + example.seen.layers * 2 * (
    _wide(example) + 0.3
  ), 0.95 + rows * 0.75


def _wide(example: Input) -> float:
  """Returns the width in inches of a panel over the alphabet."""
  count = len(_alphabet(example.seen))
  return min(max(0.055 * count, 1.3), 4.0)


def positions(
  canvas: plt.FigureBase,
  size: tuple[float, float],
  example: Input,
  basis: str,
  rows: np.ndarray,
) -> None:
  """Draws inner products of residuals with a basis, as bars over the alphabet.

  There is a row of panels per position, and a column per place in the residual
  stream.

  Args:
    canvas, size: where to draw, and its size in inches.
    example: the input that is drawn.
    basis: one of BASES.
    rows: numbers of the positions.
  """
  places = [
    (layer, place) for layer in range(example.seen.layers) for place in PLACES
  ]
  margins, gaps = (0.8, 0.1, 0.4, 0.55), (0.3, 0.15)
  axes = grid(canvas, len(rows), len(places), size, margins, gaps)
  for (row, column), axis in np.ndenumerate(axes):
    layer, place = places[column]
    bars(axis, example, basis, rows[row], layer, place)
    if row < len(rows) - 1:
      axis.set_xticklabels([])
    if row == 0:
      axis.set_title(_place(layer, place), fontsize=7, pad=3)
    if column == 0:
      axis.set_ylabel(
        told(example, rows[row]),
        fontsize=6,
        rotation=0,
        ha="right",
        va="center",
      )
  canvas.supxlabel(
    f"token; {LEGEND}", fontsize=7, y=0.05 / size[1], va="bottom"
  )
  title(
    canvas,
    size,
    f"projections on {BASES[basis]} ({basis} basis), {example.text}",
  )


def told(example: Input, position: int) -> str:
  """Returns a position in words: what it holds and what it must say."""
  at, symbols = example.seen.at, example.seen.task.symbols
  (held,), (answer,) = (
    symbols(ids[0, [position]]) for ids in (at.inputs, at.target)
  )
  suffix = f"\nsays {answer}" if at.weight[0, position] else ""
  return f"{position}: {held}{suffix}"


def position_size(example: Input) -> tuple[float, float]:
  """Returns the size in inches of the chart of `position`."""
  return 0.8 + example.seen.layers * 2 * (_wide(example) + 0.35), 4.0


def position(
  canvas: plt.FigureBase,
  size: tuple[float, float],
  example: Input,
  row: int,
  words: str,
) -> None:
  """Draws one position's residual in both bases.

  It is like figure 4.14 of the task hinting paper: a row of panels per basis, a
  column per place in the residual stream.

  Args:
    canvas, size: where to draw, and its size in inches.
    example: the input that is drawn.
    row: number of the position.
    words: what the position is, for the title.
  """
  places = [
    (layer, place) for layer in range(example.seen.layers) for place in PLACES
  ]
  margins, gaps = (0.7, 0.1, 0.45, 0.6), (0.35, 0.35)
  axes = grid(canvas, 2, len(places), size, margins, gaps)
  for (panel_row, column), axis in np.ndenumerate(axes):
    layer, place = places[column]
    basis = tuple(BASES)[panel_row]
    bars(axis, example, basis, row, layer, place)
    if panel_row == 0:
      axis.set_title(_place(layer, place), fontsize=7, pad=3)
    if column == 0:
      axis.set_ylabel(f"{basis} basis\n({BASES[basis]})", fontsize=7)
  canvas.supxlabel(
    f"token; {LEGEND}", fontsize=7, y=0.05 / size[1], va="bottom"
  )
  title(
    canvas, size, f"{words}, in {example.text}: inner products of the residual"
  )


def bars(
  axis: plt.Axes,
  example: Input,
  basis: str,
  position: int,
  n: int,
  place: str,
) -> None:
  """Draws one residual's inner products with a basis.

  Args:
    axis: where to draw.
    example: the input that is drawn.
    basis: one of BASES.
    position: the row of the residual.
    n: number of the layer.
    place: one of PLACES.
  """
  ids = _alphabet(example.seen)
  products = example.seen.project(
    example.seen.residual(n, place)[0, position], basis
  )
  at = example.seen.at
  held, wanted = int(at.inputs[0, position]), int(at.target[0, position])
  if not at.weight[0, position]:
    wanted = -1  # the output of this row does not count
  is_same = held == wanted
  colors = {
    held: BOTH if is_same else HELD,
    wanted: BOTH if is_same else WANTED,
  }
  axis.bar(
    range(len(ids)), products[ids], color=[colors.get(i, "0.7") for i in ids]
  )
  axis.axhline(0, color="0.5", linewidth=0.4)
  step = next((n for n, limit in TICKS if len(ids) <= limit), 10)
  names = example.seen.task.symbols(ids)
  axis.set_xticks(range(0, len(ids), step), names[::step], fontsize=4.5)
  axis.tick_params(axis="x", length=1, pad=1)
  axis.tick_params(axis="y", labelsize=5, length=1, pad=1)
  axis.locator_params(axis="y", nbins=3)
  axis.set_xlim(-0.7, len(ids) - 0.3)
  axis.spines[["top", "right"]].set_visible(False)


def _place(layer: int, place: str) -> str:
  """Returns the words for a place in the residual stream."""
  return f"layer {layer}, {place.replace('_', ' ').replace('mlp', 'MLP')}"


def _alphabet(seen: Seen) -> list[int]:
  """Returns the ids that bars are drawn of.

  They are those that a list or a number is made of, and the marks that this
  input holds or must say.
  """
  used = {*seen.at.inputs[0].tolist(), *seen.at.target[0].tolist()}
  limit = seen.task.alphabet + 1 if hasattr(seen.task, "alphabet") else 10
  size = len(seen.bases["encoder"])
  return [
    token for token in tokens(seen.task, size) if token < limit or token in used
  ]


# Bases.


BASES_SIZE = (13.0, 5.6)


def bases(
  canvas: plt.FigureBase, size: tuple[float, float], example: Input
) -> None:
  """Draws the norms of both bases' vectors, and the cosines between them."""
  ids = _alphabet(example.seen)
  names = example.seen.task.symbols(ids)
  vectors_by_basis = {
    name: vectors[ids] for name, vectors in example.seen.bases.items()
  }
  norms, cosines = canvas.subfigures(2, 1, height_ratios=(1, 2.2))
  low, high = size[1] / 3.2, size[1] * 2.2 / 3.2
  margins = (0.6, 0.2, 0.3, 0.5)
  for axis, (name, vectors) in zip(
    grid(norms, 1, 2, (size[0], low), margins, (0.6, 0.1))[0],
    vectors_by_basis.items(),
    strict=True,
  ):
    axis.bar(range(len(ids)), np.linalg.norm(vectors, axis=1), color="0.5")
    ticks(axis.set_xticks, names, 5 if len(ids) < 50 else 2.5)
    axis.set_title(f"norms, {name} basis ({BASES[name]})", fontsize=7)
    axis.tick_params(axis="y", labelsize=6)
    axis.set_xlim(-0.7, len(ids) - 0.3)
  margins, gaps = (0.4, 0.7, 0.4, 0.3), (0.5, 0.1)
  pairs = (
    ("encoder", "encoder"),
    ("decoder", "decoder"),
    ("encoder", "decoder"),
  )
  for axis, (first, second) in zip(
    grid(cosines, 1, 3, (size[0], high), margins, gaps)[0], pairs, strict=True
  ):
    image = axis.imshow(
      angles(vectors_by_basis[first], vectors_by_basis[second]),
      cmap="RdBu_r",
      vmin=-1,
      vmax=1,
    )
    axis.set_title(f"cosines, {first} with {second}", fontsize=7)
    for set_ticks in (axis.set_xticks, axis.set_yticks):
      ticks(set_ticks, names, 4.5 if len(ids) < 50 else 2.5)
    axis.tick_params(length=1, pad=1)
  scale(cosines, (size[0], high), image, margins, "cosine")
  title(canvas, size, "both bases: vectors of every token")
