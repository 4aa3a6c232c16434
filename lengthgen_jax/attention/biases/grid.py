"""The windowed bias of grids: one near cell for every head."""

import numpy as np

from lengthgen_jax.attention.biases.scaffold import Shape
from lengthgen_jax.attention.lines import LEFT, RIGHT, SiteLines
from lengthgen_jax.errors import check


def grid(section, about: Shape) -> dict:
  """Cells near a grid's row (j, k), one for each head in turn (ours).

  Operands that stand on k: digit k and the `section.window` less significant
  ones; on j: digit j. Outputs: the one before, and of the row before the digits
  k + w down to k + 1 - w; these in the first layer alone, where a key is a
  token: later it is a state, which has seen its own neighborhood.

  Args:
    section: `window` is w.
    about: see Shape.

  Raises:
    UsageError: outputs are no grid.
  """
  check(
    about.axes > 1,
    "bias.kind='grid': this task's outputs are no grid; choose window",
  )
  width = section.window
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
  """SiteLines [1, N, H, 1]: a cell for each head; the `first` ones are in the
  first layer alone."""
  check(
    len(cells) <= about.heads,
    f"bias.kind='grid' has {len(cells)} cells and model.num_heads="
    f"{about.heads} one for each; choose more heads or a smaller bias.window",
  )
  order = np.arange(about.heads) % len(cells)
  valid = np.ones((about.layers, about.heads), bool)
  valid[1:, order < first] = False

  def spread(found, kind=np.int32):
    found = np.array(found, kind)[order][:, None]
    return np.broadcast_to(found, (1, about.layers, *found.shape))

  segment, anchor, matrix, intercept = zip(*cells, strict=True)
  return SiteLines(
    row_segment=spread([about.target] * len(cells)),
    segment=spread(segment),
    anchor=spread(anchor),
    matrix=spread(matrix),
    intercept=spread(intercept),
    value=spread(np.zeros(len(cells)), np.float32),
    valid=valid[None, ..., None],
    transparent=np.zeros((1, about.layers, about.heads), bool),
  )
