"""The windows of the ABS paper as lines, and windows on grids."""

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
from lengthgen_jax.tasks.grid import GridTask


def window(section: ConfigDict, spec: ScaffoldSpec) -> dict[str, SiteLines]:
  """Returns windows of single digits or items (ABS paper, appendix C.4).

  In self-attention row i sees inputs i, i-1, ..., i - `section.window`. Of
  every segment of the prompt an output's row sees the tokens of its own digit,
  two if operands are interleaved, and those of `section.input_window` rows on
  either side; all rows see the single digit of N×1. A decoder-only model has
  all this in its self-attention. For grids see `grid_window`, which uses
  `section.window` alone.
  """
  task = spec.task
  if task.axes > 1:
    check(
      section.input_window == 0,
      f"bias.input_window={section.input_window}: grids have bias.window alone;"
      " choose 0",
    )
    return grid_window(section.window, spec)
  check(
    task.strides,
    "bias.kind='window': this task's outputs stand at no fixed place of its"
    " input; choose none or file",
  )
  heads = spec.num_heads
  anchor = LEFT if task.anchor == "left" else RIGHT
  output_lines = [
    Line(WHOLE, LEFT, 1, -offset) for offset in range(section.window + 1)
  ]
  input_lines = []
  for segment, stride in enumerate(task.strides):
    # In tokens; all rows have the single digit, whose stride is 0.
    own, beside = max(stride, 1), section.input_window * stride
    input_lines += [
      Line(segment, anchor, stride, intercept, row_segment=task.target_segment)
      for intercept in range(-beside, own + beside)
    ]
  if "cross" not in spec.site_segments:
    return {"self": shared_lines(output_lines + input_lines, heads)}
  return {
    "self": shared_lines(output_lines, heads),
    "cross": shared_lines(input_lines, heads),
  }


def grid_window(width: int, spec: ScaffoldSpec) -> dict[str, SiteLines]:
  """Returns lines from the output (j, k) of a grid to the tokens near it.

  The lines are dealt to the heads in turn. The choice of tokens is ours. Of an
  operand along k, the position that predicts (j, k) sees digit k and the
  `width` less significant ones (of its row j, if it has both axes) or, if the
  first row is this operand, cell k from that row alone; of an operand along j,
  item j. Of the outputs it sees (j, k - 1) if k > 0, and (j - 1, k -
  width·behind) to (j - 1, k + width·ahead), by the task's `ahead` and `behind`.
  Lines to outputs are in the first layer alone, where a key is a token; in
  later layers it is a state that has seen its own neighborhood. Lines to
  operands are in all layers.
  """
  task = spec.task
  assert isinstance(task, GridTask)
  anchor = LEFT if task.anchor == "left" else RIGHT
  target, last_axis = task.target_segment, task.axes - 1
  identity = np.eye(task.axes, dtype=int)
  # A line is a tuple of the fields of Lines: the row's and the key's segment,
  # the anchor, the matrix and the intercept.
  last, first = width * task.ahead, -width * task.behind
  intercepts = [(0, -1), *((-1, c) for c in range(last, first - 1, -1))]
  output_lines = [
    (target, target, LEFT, identity, intercept) for intercept in intercepts
  ]
  operand_lines = []
  for segment, axes in enumerate(task.segment_axes):
    is_first_row = last_axis in axes and task.operand_in == "first"
    shifts = width * (last_axis in axes and not is_first_row)
    matrix = identity if is_first_row else np.diag(identity[[*axes]].sum(0))
    operand_lines += [
      (target, segment, anchor, matrix, -shift * identity[axes[-1]])
      for shift in range(shifts + 1)
    ]
  outputs = len(output_lines)
  if "cross" not in spec.site_segments:
    return {"self": _deal_to_heads(output_lines + operand_lines, spec, outputs)}
  return {
    "self": _deal_to_heads(output_lines, spec, outputs),
    "cross": _deal_to_heads(operand_lines, spec, 0),
  }


def _deal_to_heads(
  lines: list[tuple], spec: ScaffoldSpec, num_in_first_layer: int
) -> SiteLines:
  """Deals lines to heads in turn, until every line is dealt and every head has
  one; the first `num_in_first_layer` lines are in the first layer alone."""
  heads, layers, count = spec.num_heads, spec.depths["self"], len(lines)
  turn = np.arange(-(-max(count, heads) // heads) * heads)
  order = np.where(turn < max(count, heads), turn % count, -1)
  order = order.reshape(-1, heads).T  # [H, K], -1 where there is no line
  valid = np.broadcast_to(order >= 0, (layers, *order.shape)).copy()
  valid[1:] &= order >= num_in_first_layer
  fields = zip(*lines, strict=True)
  all_lines = Lines(*(np.array(field, np.int32) for field in fields))
  repeat = lambda x: np.broadcast_to(x, (1, layers, *x.shape))
  return SiteLines(
    *(repeat(field) for field in all_lines.take(order)),
    value=np.zeros((1, *valid.shape), np.float32),
    valid=valid[None],
    transparent=np.zeros((1, layers, heads), bool),
  )
