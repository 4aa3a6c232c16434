"""This module makes the windowed bias of ABS, as lines."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lengthgen_jax.attention.biases.grid import grid
from lengthgen_jax.attention.biases.scaffold import Shape
from lengthgen_jax.attention.lines import ANY, LEFT, RIGHT, WHOLE, SiteLines
from lengthgen_jax.errors import check

SIDES = ("both", "previous")


def window(section, shape: Shape) -> dict[str, SiteLines]:
  """Makes windows of `section.window` tokens (ABS paper, section 4.1).

  Self-attention: row i sees decoder inputs i, i-1, ..., i-w. Input: in every
  segment the tokens of row i's own digit and w tokens on either side; a segment
  that advances two tokens per row (interleaved operands) opens two, and one
  that stays (the single digit of N×1) opens its last token and w to its left,
  for every row. A decoder-only model has both in its self-attention. For grids
  see biases.grid.

  Args:
    section: `window` is w; `sides` is "both" as the papers write, or
      "previous": only the less significant side, as the released ABC program
      does. Without positions it matters: the first row of a window to both
      sides sees a digit and its left neighbor and cannot tell which is which.
      `windowed_encoder` asks for w tokens to both sides in encoder
      self-attention too.
    shape: what the scaffold must know of the model and task.

  Raises:
    UsageError: outputs stand at no fixed place of the input.
  """
  if shape.axes > 1:
    return grid(section.window, shape)
  check(
    shape.strides,
    "bias.kind='window': this task's outputs stand at no fixed place of its"
    " input; choose none or file",
  )
  width, heads = section.window, shape.heads
  anchor = LEFT if shape.anchor == "left" else RIGHT
  output_lines = [Line(WHOLE, LEFT, 1, -offset) for offset in range(width + 1)]
  input_lines = []
  for segment, stride in enumerate(shape.strides):
    first = -width if stride else 0
    last = width if section.sides == "both" else 0
    input_lines += [
      Line(segment, anchor, stride, intercept, row_segment=shape.target)
      for intercept in range(first, max(stride, 1) + last)
    ]
  if "cross" not in shape.sites:
    return {"self": shared_lines(output_lines + input_lines, heads)}
  scaffold = {
    "self": shared_lines(output_lines, heads),
    "cross": shared_lines(input_lines, heads),
  }
  if section.windowed_encoder:
    band = [Line(WHOLE, LEFT, 1, offset) for offset in range(-width, width + 1)]
    scaffold["encoder"] = shared_lines(band, heads)
  return scaffold


class Line(NamedTuple):
  """A Line is one line with one axis, as a person writes it."""

  segment: int
  anchor: int
  step: int  # M
  intercept: int
  value: float = 0.0
  row_segment: int = ANY


def shared_lines(lines: Sequence[Line], heads: int) -> SiteLines:
  """Returns SiteLines [1, 1, H, K], the same for every seed, layer and head."""
  spread = lambda x, dtype=np.int32: np.broadcast_to(
    x.astype(dtype), (1, 1, heads, *x.shape)
  )
  column = Line(*map(np.array, zip(*lines, strict=True)))
  return SiteLines(
    row_segment=spread(column.row_segment),
    segment=spread(column.segment),
    anchor=spread(column.anchor),
    matrix=spread(column.step[:, None, None]),
    intercept=spread(column.intercept[:, None]),
    value=spread(column.value, np.float32),
    valid=spread(np.ones(len(lines)), bool),
    transparent=np.zeros((1, 1, heads), bool),
  )
