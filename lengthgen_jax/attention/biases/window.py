"""This module makes windowed biases, as lines: of sequences, and of grids."""

import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax.attention.biases.scaffold import ScaffoldSpec
from lengthgen_jax.attention.lines import (
  LEFT,
  RIGHT,
  WHOLE,
  Line,
  Lines,
  SiteLines,
  shared_lines,
)
from lengthgen_jax.errors import check

SIDES = ("both", "previous")


def window(section: ConfigDict, spec: ScaffoldSpec) -> dict[str, SiteLines]:
  """Makes windows of `section.window` tokens (ABS paper, section 4.1).

  Self-attention: row i sees decoder inputs i, i-1, ..., i-w. Input: in every
  segment the tokens of row i's own digit and w tokens on either side; a segment
  that advances two tokens per row (interleaved operands) opens two, and one
  that stays (the single digit of N×1) opens its last token and w to its left,
  for every row. A decoder-only model has both in its self-attention. For grids
  see `grid_window`.

  Args:
    section: `window` is w; `sides` is "both" as the papers write, or
      "previous": only the less significant side, as the released ABC program
      does. Without positions it matters: the first row of a window to both
      sides sees a digit and its left neighbor and cannot tell which is which.
      `windowed_encoder` asks for w tokens to both sides in encoder
      self-attention too.

  Raises:
    UsageError: outputs stand at no fixed place of the input.
  """
  task = spec.task
  if task.axes > 1:
    return grid_window(section.window, spec)
  check(
    task.strides,
    "bias.kind='window': this task's outputs stand at no fixed place of its"
    " input; choose none or file",
  )
  width, heads = section.window, spec.num_heads
  anchor = LEFT if task.anchor == "left" else RIGHT
  output_lines = [Line(WHOLE, LEFT, 1, -offset) for offset in range(width + 1)]
  input_lines = []
  for segment, stride in enumerate(task.strides):
    first = -width if stride else 0
    last = width if section.sides == "both" else 0
    input_lines += [
      Line(segment, anchor, stride, intercept, row_segment=task.target_segment)
      for intercept in range(first, max(stride, 1) + last)
    ]
  if "cross" not in spec.site_segments:
    return {"self": shared_lines(output_lines + input_lines, heads)}
  scaffold = {
    "self": shared_lines(output_lines, heads),
    "cross": shared_lines(input_lines, heads),
  }
  if section.windowed_encoder:
    band = [Line(WHOLE, LEFT, 1, offset) for offset in range(-width, width + 1)]
    scaffold["encoder"] = shared_lines(band, heads)
  return scaffold


def grid_window(width: int, spec: ScaffoldSpec) -> dict[str, SiteLines]:
  """Returns lines to the cells near a grid's row (j, k), one for each head in
  turn.

  The choice of cells is ours. Operands that stand on k: digit k and the `width`
  less significant ones; on j: digit j. Outputs: the one before, and of the row
  before the digits k + width down to k + 1 - width; these in the first layer
  alone, where a key is a token: later it is a state, which has seen its own
  neighborhood.
  """
  task = spec.task
  target, last_axis = task.target_segment, task.axes - 1
  identity = np.eye(task.axes, dtype=int)
  operand_cells = []
  for segment, axis in enumerate(task.segment_axes):
    places = range(width + 1) if axis == last_axis else range(1)
    step = np.diag(identity[axis])
    operand_cells += [
      (target, segment, RIGHT, step, -back * identity[axis]) for back in places
    ]
  offsets = [(0, -1), *((-1, ahead) for ahead in range(width, -width, -1))]
  output_cells = [(target, target, LEFT, identity, x) for x in offsets]
  if "cross" not in spec.site_segments:
    return {
      "self": _deal(output_cells + operand_cells, spec, len(output_cells))
    }
  return {
    "self": _deal(output_cells, spec, len(output_cells)),
    "cross": _deal(operand_cells, spec, 0),
  }


def _deal(
  cells: list, spec: ScaffoldSpec, num_in_first_layer: int
) -> SiteLines:
  """Deals cells out to heads in turn, until all have had one, as SiteLines [1,
  N, H, K].

  The first so many cells are in the first layer alone.
  """
  heads, layers = spec.num_heads, spec.num_decoder_layers
  turn = np.arange(-(-max(len(cells), heads) // heads) * heads)
  order = np.where(turn < max(len(cells), heads), turn % len(cells), -1)
  order = order.reshape(-1, heads).T  # [H, K]
  valid = np.broadcast_to(order >= 0, (layers, *order.shape)).copy()
  valid[1:] &= order >= num_in_first_layer
  columns = zip(*cells, strict=True)
  lines = Lines(*(np.array(column, np.int32) for column in columns))
  spread = lambda x: np.broadcast_to(x, (1, layers, *x.shape))
  return SiteLines(
    *(spread(field) for field in lines.take(order)),
    value=np.zeros((1, *valid.shape), np.float32),
    valid=valid[None],
    transparent=np.zeros((1, layers, heads), bool),
  )
