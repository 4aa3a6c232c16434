"""This module lists the lines that calibration tests: all that meet a cell."""

import itertools
from collections.abc import Collection, Sequence
from typing import NamedTuple

import jax
import numpy as np

from lengthgen_jax.attention.lines import ANY, LEFT, RIGHT, WHOLE
from lengthgen_jax.coordinates import PAD, Coordinates


class Candidates(NamedTuple):
  """C candidate lines share the fields of SiteLines, int32, without the axis
  K."""

  row_segment: np.ndarray
  segment: np.ndarray
  anchor: np.ndarray
  matrix: np.ndarray
  intercept: np.ndarray

  @property
  def direction(self) -> np.ndarray:
    """Marks the pairs of lines of the same direction, segment and anchor, [C,
    C] bool."""
    same = lambda x: (x[:, None] == x).reshape(len(x), len(x), -1).all(-1)
    return same(self.segment) & same(self.anchor) & same(self.matrix)


def candidates(
  rows: Coordinates,
  keys: Coordinates,
  row_segment: int,
  steps: Sequence[int],
  absolute: bool,
  ends: Collection[int],
  end_steps: Sequence[int] | None = None,
) -> Candidates:
  """Lists every line of the given directions that meets a cell.

  Args:
    rows, keys: Coordinates [1, L] of the largest condition, on the host.
    row_segment: the segment whose rows have these lines, or ANY.
    steps: Δ values, the papers' column steps per row; with two axes, each of
      the key's axes follows the row's same axis by one of them.
    absolute: whether to list the papers' lines: one segment over everything,
      anchored left for Δ >= 0 and right for Δ < 0.
    ends: segments (or WHOLE) whose right end is known when a row is computed,
      so that lines may be anchored there. The output is none of them: its end
      comes last.
    end_steps: Δ values of those segments, where a model reads its prompt in
      self-attention; None: the same as `steps`.
  """
  rows, keys = jax.tree.map(np.asarray, (rows, keys))
  occupied = rows.segment[0] != PAD
  selected = occupied if row_segment == ANY else rows.segment[0] == row_segment
  segments = (
    [WHOLE] if absolute else sorted(set(keys.segment[0].tolist()) - {PAD})
  )
  lines = []
  for segment in segments:
    segment_steps = end_steps if end_steps and segment in ends else steps
    for anchor in (LEFT, RIGHT) if segment in ends else (LEFT,):
      key_offsets, row_offsets = _offsets(rows, keys, selected, segment, anchor)
      split_by_sign = absolute and segment in ends
      for matrix in _matrices(
        key_offsets, segment_steps, anchor, split_by_sign
      ):
        # These are all intercepts that occur: key's offset - M · row's.
        intercepts = key_offsets[None] - (row_offsets @ matrix.T)[:, None]
        for intercept in np.unique(
          intercepts.reshape(-1, intercepts.shape[-1]), axis=0
        ):
          lines.append((row_segment, segment, anchor, matrix, intercept))
  columns = zip(*lines, strict=True)
  return Candidates(*(np.array(column, np.int32) for column in columns))


def _offsets(
  rows: Coordinates,
  keys: Coordinates,
  selected: np.ndarray,
  segment: int,
  anchor: int,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the offsets [S', A] of a segment's keys, and [T', A] of the
  selected rows."""
  in_segment = keys.segment[0] == segment
  key_offsets, row_offsets = (
    keys.left[0] if anchor == LEFT else keys.right[0],
    rows.left[0],
  )
  if segment == WHOLE:  # one segment along the first axis
    in_segment = keys.segment[0] != PAD
    index = keys.index if anchor == LEFT else keys.index_right()[0]
    is_first_axis = np.arange(rows.axes) == 0
    key_offsets, row_offsets = (
      x[:, None] * is_first_axis for x in (np.asarray(index), rows.index)
    )
  return key_offsets[in_segment], row_offsets[selected]


def _matrices(
  offsets: np.ndarray, steps: Sequence[int], anchor: int, split_by_sign: bool
) -> list[np.ndarray]:
  """Returns the matrix M of every direction.

  An axis along which all keys have the same offset is not followed. If split by
  sign, each direction belongs to one anchor.
  """
  axes = offsets.shape[-1]
  extends = [len(np.unique(offsets[:, axis])) > 1 for axis in range(axes)]
  choices = [steps if extent else (0,) for extent in extends]
  sign = 1 if anchor == LEFT else -1
  return [
    sign * np.diag(step)
    for step in itertools.product(*choices)
    if not split_by_sign or (step[0] < 0) == (anchor == RIGHT)
  ]


def near(tested: Candidates, keys: Coordinates, task, reach: int) -> np.ndarray:
  """Marks the lines that keep small what a row depends on, [2, C] bool.

  The first row of the result is for the first layer, the second for later
  layers. Lines at fixed places may lead to marks, or to digits that all places
  share (N×1's single one), not to live digits or outputs. Lines to outputs
  reach at most `reach` rows back. The start token is a mark in the first layer
  alone: later its key is the state of the first row, which has seen live
  digits. On a grid, outputs are at most `reach` cells away along either axis.
  So are digits of operands, which are followed from the right end; of an
  operand along the grid's rows, only the row's own digit is seen.

  Args:
    tested: candidates of a task that is a transducer, or a grid.
    keys: Coordinates [1, L] of the condition that they are from.
    task: says which token stands where.
    reach: how many rows back; 1 is the row's own input and the one before.
  """
  nearby = []
  for segment, anchor, matrix, intercept in zip(*tested[1:], strict=True):
    # A line follows all axes along which its segment extends.
    is_operand = 0 <= segment < task.target_segment
    axes = [*range(task.axes)]
    axes = (
      axes
      if not is_operand
      else [task.segment_axes[segment] if task.segment_axes else 0]
    )
    fixed, intercept = (
      any(not matrix[axis, axis] for axis in axes),
      intercept[axes],
    )
    if segment == task.target_segment + 1:
      nearby.append((True, False))
    elif segment == task.target_segment:
      close = intercept[0] >= -1 - reach
      if task.axes > 1:
        close = (abs(intercept) <= reach).all()
      nearby.append((close and not fixed,) * 2)
    elif fixed and is_operand:
      intercept = int(intercept[0])
      size = int(np.sum(np.asarray(keys.segment[0]) == segment))
      left, right = (
        (intercept, size - 1 - intercept)
        if anchor == LEFT
        else (size - 1 - intercept, intercept)
      )
      element = task.operand_place(int(segment), left, right)
      nearby.append(
        (element is None or element[0] in task.shared_operands,) * 2
      )
    else:
      farthest = reach if axes[-1] == task.axes - 1 else 0
      follows = (
        anchor == RIGHT and matrix.max() == 1 and abs(intercept[0]) <= farthest
      )
      nearby.append((task.axes == 1 or follows,) * 2)
  return np.array(nearby).T


def first(verdict, tested: Candidates, task):
  """Moves a grid's lines to outputs into the first layer, and returns the
  Verdict.

  The heads that have such a line in the first layer in which any head has it
  have it in layer 0 afterwards. In a later layer its keys have seen the cells
  before those, and so on to the start.
  """
  to_output = tested.segment == task.target_segment
  first_layer = np.argmax(verdict.keep.any(axis=1), axis=0)  # of each line
  moved = []
  for field in verdict:
    values = np.array(field)
    values[0] = np.where(
      to_output, field[first_layer, :, np.arange(len(first_layer))].T, field[0]
    )
    moved.append(values)
  moved = type(verdict)(*moved)
  moved.keep[1:] &= ~to_output
  return moved


def phrase(line: Sequence[np.ndarray], names: Sequence[str]) -> str:
  """Describes one line in words, like "b: right-1·row = 0".

  Args:
    line: (row_segment, segment, anchor, matrix, intercept) of one line.
    names: segment names.
  """
  _, segment, anchor, matrix, intercept = map(np.asarray, line)
  name = "whole" if segment == WHOLE else names[int(segment)]
  end = ("left", "right")[int(anchor)]
  axes = [""] if len(intercept) == 1 else ["j", "k"]
  equations = []
  for axis, label in enumerate(axes):
    terms = "".join(
      f"{-int(factor):+d}·row{row_axis}"
      for factor, row_axis in zip(matrix[axis], axes, strict=True)
      if factor
    )
    equations.append(f"{end}{label}{terms} = {int(intercept[axis])}")
  return f"{name}: {', '.join(equations)}"
