"""Pictures of residuals in a model's own two bases, and of the bases (task
hinting paper, section 4 and figure 4.14)."""

import numpy as np

from lengthgen_jax.drawing import grid, scale, title
from lengthgen_jax.probes.activations import PLACES, Seen, angles, tokens
from lengthgen_jax.probes.attention_maps import Input, ticks

ROWS = 12  # positions of a page
BASES = {"encoder": "embedding rows", "decoder": "output columns"}
TICKS = ((1, 20), (2, 40), (5, 100))  # every so many of at most so many tokens
HELD, WANTED, BOTH = "tab:orange", "tab:green", "tab:purple"
LEGEND = "orange: the token it holds; green: the one it must say; purple: both"


def positions_size(own: Input, rows: int) -> tuple:
  """Inches of a picture of so many positions' projections."""
  return 0.8 + own.seen.layers * 2 * (_wide(own) + 0.3), 0.95 + rows * 0.75


def _wide(own: Input) -> float:
  count = len(_alphabet(own.seen))
  return min(max(0.055 * count, 1.3), 4.0)


def positions(canvas, size, own: Input, basis: str, rows) -> None:
  """Inner products with a basis, as bars over the alphabet: a row of panels per
  position, a column per place in the residual stream."""
  places = [(n, place) for n in range(own.seen.layers) for place in PLACES]
  margins, gaps = (0.8, 0.1, 0.4, 0.55), (0.3, 0.15)
  axes = grid(canvas, len(rows), len(places), size, margins, gaps)
  for (r, c), axis in np.ndenumerate(axes):
    n, place = places[c]
    bars(axis, own, basis, rows[r], n, place)
    if r < len(rows) - 1:
      axis.set_xticklabels([])
    if r == 0:
      axis.set_title(_place(n, place), fontsize=7, pad=3)
    if c == 0:
      axis.set_ylabel(
        told(own, rows[r]), fontsize=6, rotation=0, ha="right", va="center"
      )
  canvas.supxlabel(
    f"token; {LEGEND}", fontsize=7, y=0.05 / size[1], va="bottom"
  )
  title(
    canvas, size, f"projections on {BASES[basis]} ({basis} basis), {own.text}"
  )


def told(own: Input, position: int) -> str:
  """A position in words: what it holds and what it must say."""
  at, symbols = own.seen.at, own.seen.task.symbols
  (held,), (said,) = (symbols(x[0, [position]]) for x in (at.inputs, at.target))
  says = f"\nsays {said}" if at.weight[0, position] else ""
  return f"{position}: {held}{says}"


def position_size(own: Input) -> tuple:
  """Inches of a picture of one position."""
  return 0.8 + own.seen.layers * 2 * (_wide(own) + 0.35), 4.0


def position(canvas, size, own: Input, row: int, words: str) -> None:
  """One position's residual in both bases (task hinting paper, figure 4.14)."""
  places = [(n, place) for n in range(own.seen.layers) for place in PLACES]
  margins, gaps = (0.7, 0.1, 0.45, 0.6), (0.35, 0.35)
  axes = grid(canvas, 2, len(places), size, margins, gaps)
  for (r, c), axis in np.ndenumerate(axes):
    n, place = places[c]
    basis = tuple(BASES)[r]
    bars(axis, own, basis, row, n, place)
    if r == 0:
      axis.set_title(_place(n, place), fontsize=7, pad=3)
    if c == 0:
      axis.set_ylabel(f"{basis} basis\n({BASES[basis]})", fontsize=7)
  canvas.supxlabel(
    f"token; {LEGEND}", fontsize=7, y=0.05 / size[1], va="bottom"
  )
  title(canvas, size, f"{words}, in {own.text}: inner products of the residual")


def bars(axis, own: Input, basis: str, position: int, n: int, place: str):
  """One residual's inner products with a basis."""
  ids = _alphabet(own.seen)
  found = own.seen.project(own.seen.residual(n, place)[0, position], basis)
  at = own.seen.at
  held, wanted = int(at.inputs[0, position]), int(at.target[0, position])
  if not at.weight[0, position]:
    wanted = -1  # nobody asks
  same = held == wanted
  colors = {held: BOTH if same else HELD, wanted: BOTH if same else WANTED}
  axis.bar(
    range(len(ids)), found[ids], color=[colors.get(i, "0.7") for i in ids]
  )
  axis.axhline(0, color="0.5", linewidth=0.4)
  every = next((n for n, most in TICKS if len(ids) <= most), 10)
  names = own.seen.task.symbols(ids)
  axis.set_xticks(range(0, len(ids), every), names[::every], fontsize=4.5)
  axis.tick_params(axis="x", length=1, pad=1)
  axis.tick_params(axis="y", labelsize=5, length=1, pad=1)
  axis.locator_params(axis="y", nbins=3)
  axis.set_xlim(-0.7, len(ids) - 0.3)
  axis.spines[["top", "right"]].set_visible(False)


def _place(n: int, place: str) -> str:
  return f"layer {n}, {place.replace('_', ' ').replace('mlp', 'MLP')}"


def _alphabet(seen: Seen) -> list[int]:
  """Ids that a list or a number is made of, and marks that are held or said."""
  used = {*seen.at.inputs[0].tolist(), *seen.at.target[0].tolist()}
  most = seen.task.alphabet + 1 if hasattr(seen.task, "alphabet") else 10
  size = len(seen.bases["encoder"])
  return [i for i in tokens(seen.task, size) if i < most or i in used]


# Bases.


BASES_SIZE = (13.0, 5.6)


def bases(canvas, size, own: Input) -> None:
  """Norms of both bases' vectors, and the cosines between them."""
  ids = _alphabet(own.seen)
  names = own.seen.task.symbols(ids)
  found = {name: vectors[ids] for name, vectors in own.seen.bases.items()}
  norms, cosines = canvas.subfigures(2, 1, height_ratios=(1, 2.2))
  low, high = size[1] / 3.2, size[1] * 2.2 / 3.2
  margins = (0.6, 0.2, 0.3, 0.5)
  for axis, (name, vectors) in zip(
    grid(norms, 1, 2, (size[0], low), margins, (0.6, 0.1))[0],
    found.items(),
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
      angles(found[first], found[second]), cmap="RdBu_r", vmin=-1, vmax=1
    )
    axis.set_title(f"cosines, {first} with {second}", fontsize=7)
    for set_ticks in (axis.set_xticks, axis.set_yticks):
      ticks(set_ticks, names, 4.5 if len(ids) < 50 else 2.5)
    axis.tick_params(length=1, pad=1)
  scale(cosines, (size[0], high), image, margins, "cosine")
  title(canvas, size, "both bases: vectors of every token")
