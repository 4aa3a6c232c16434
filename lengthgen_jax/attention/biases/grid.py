"""This module makes the windowed bias of grids: near cells, one for every
head."""

import numpy as np

from lengthgen_jax.attention.biases.scaffold import Shape
from lengthgen_jax.attention.lines import LEFT, RIGHT, SiteLines


def grid(width: int, shape: Shape) -> dict[str, SiteLines]:
  """Returns lines to the cells near a grid's row (j, k), one for each head in
  turn.

  The choice of cells is ours. Operands that stand on k: digit k and the `width`
  less significant ones; on j: digit j. Outputs: the one before, and of the row
  before the digits k + width down to k + 1 - width; these in the first layer
  alone, where a key is a token: later it is a state, which has seen its own
  neighborhood.
  """
  last_axis = shape.axes - 1
  identity = np.eye(shape.axes, dtype=int)
  operand_cells = []
  for segment, axis in enumerate(shape.along):
    places = range(width + 1) if axis == last_axis else range(1)
    step = np.diag(identity[axis])
    operand_cells += [
      (segment, RIGHT, step, -back * identity[axis]) for back in places
    ]
  output_cells = [(0, -1), *((-1, ahead) for ahead in range(width, -width, -1))]
  output_cells = [
    (shape.target, LEFT, identity, np.array(offset)) for offset in output_cells
  ]
  if "cross" not in shape.sites:
    return {
      "self": _in_turn(output_cells + operand_cells, shape, len(output_cells))
    }
  return {
    "self": _in_turn(output_cells, shape, len(output_cells)),
    "cross": _in_turn(operand_cells, shape, 0),
  }


def _in_turn(cells: list, shape: Shape, first: int) -> SiteLines:
  """Deals cells out to heads in turn, until all have had one, as SiteLines [1,
  N, H, K].

  The `first` cells are in the first layer alone.
  """
  heads, layers = shape.heads, shape.layers
  turn = np.arange(-(-max(len(cells), heads) // heads) * heads)
  order = np.where(turn < max(len(cells), heads), turn % len(cells), -1)
  order = order.reshape(-1, heads).T  # [H, K]
  valid = np.broadcast_to(order >= 0, (layers, *order.shape)).copy()
  valid[1:] &= order >= first

  def spread(values, dtype=np.int32):
    values = np.array(values, dtype)[order]
    return np.broadcast_to(values, (1, layers, *values.shape))

  segment, anchor, matrix, intercept = zip(*cells, strict=True)
  return SiteLines(
    row_segment=spread([shape.target] * len(cells)),
    segment=spread(segment),
    anchor=spread(anchor),
    matrix=spread(matrix),
    intercept=spread(intercept),
    value=spread(np.zeros(len(cells)), np.float32),
    valid=valid[None],
    transparent=np.zeros((1, layers, heads), bool),
  )
