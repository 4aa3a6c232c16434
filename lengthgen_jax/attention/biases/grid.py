"""The windowed bias of grids: near cells, one for every head."""

import numpy as np

from lengthgen_jax.attention.biases.scaffold import Shape
from lengthgen_jax.attention.lines import LEFT, RIGHT, SiteLines


def grid(width: int, about: Shape) -> dict:
  """Cells near a grid's row (j, k), one for each head in turn (ours).

  Operands that stand on k: digit k and the `width` less significant ones; on j:
  digit j. Outputs: the one before, and of the row before the digits k + width
  down to k + 1 - width; these in the first layer alone, where a key is a token:
  later it is a state, which has seen its own neighborhood.
  """
  last = about.axes - 1
  own = np.eye(about.axes, dtype=int)
  read = []
  for segment, axis in enumerate(about.along):
    places = range(width + 1) if axis == last else range(1)
    step = np.diag(own[axis])
    read += [(segment, RIGHT, step, -back * own[axis]) for back in places]
  said = [(0, -1), *((-1, ahead) for ahead in range(width, -width, -1))]
  said = [(about.target, LEFT, own, np.array(c)) for c in said]
  if "cross" not in about.sites:
    return {"self": _in_turn(said + read, about, len(said))}
  return {
    "self": _in_turn(said, about, len(said)),
    "cross": _in_turn(read, about, 0),
  }


def _in_turn(cells, about: Shape, first: int) -> SiteLines:
  """SiteLines [1, N, H, K]: cells and heads in turn, until all have had one;
  the `first` cells are in the first layer alone."""
  heads, layers = about.heads, about.layers
  turn = np.arange(-(-max(len(cells), heads) // heads) * heads)
  order = np.where(turn < max(len(cells), heads), turn % len(cells), -1)
  order = order.reshape(-1, heads).T  # [H, K]
  valid = np.broadcast_to(order >= 0, (layers, *order.shape)).copy()
  valid[1:] &= order >= first

  def spread(found, kind=np.int32):
    found = np.array(found, kind)[order]
    return np.broadcast_to(found, (1, layers, *found.shape))

  segment, anchor, matrix, intercept = zip(*cells, strict=True)
  return SiteLines(
    row_segment=spread([about.target] * len(cells)),
    segment=spread(segment),
    anchor=spread(anchor),
    matrix=spread(matrix),
    intercept=spread(intercept),
    value=spread(np.zeros(len(cells)), np.float32),
    valid=valid[None],
    transparent=np.zeros((1, layers, heads), bool),
  )
