"""The lines that calibration tests: all that meet a cell."""

import itertools
from typing import NamedTuple

import jax
import numpy as np

from lengthgen_jax.attention.lines import ANY, LEFT, RIGHT, WHOLE
from lengthgen_jax.coordinates import PAD


class Candidates(NamedTuple):
  """C lines to test, int32: fields as in SiteLines, and nothing of K."""

  row_segment: np.ndarray
  segment: np.ndarray
  anchor: np.ndarray
  matrix: np.ndarray
  intercept: np.ndarray

  @property
  def direction(self):
    """[C, C] bool: pairs of the same direction, segment and anchor."""
    same = lambda x: (x[:, None] == x).reshape(len(x), len(x), -1).all(-1)
    return same(self.segment) & same(self.anchor) & same(self.matrix)


def candidates(
  rows, keys, row_segment: int, steps, absolute: bool, ends, end_steps=None
):
  """Every line of the given directions that meets a cell.

  Args:
    rows, keys: Coordinates [1, L] of the largest condition; host-side.
    row_segment: the segment whose rows have these lines, or ANY.
    steps: Δ values, the papers' column steps per row; with two axes, each of
      the key's axes follows the row's same axis by one of them.
    absolute: the papers' lines: one segment over everything, anchored left
      for Δ >= 0 and right for Δ < 0.
    ends: segments (or WHOLE) whose right end is known when a row is said (not
      so for the output, whose end comes last), so that lines may be anchored
      there.
    end_steps: Δ values of those segments, where a model reads its prompt in
      self-attention; None: the same.
  """
  rows, keys = jax.tree.map(np.asarray, (rows, keys))
  there = rows.segment[0] != PAD
  said = there if row_segment == ANY else rows.segment[0] == row_segment
  names = [WHOLE] if absolute else sorted(set(keys.segment[0].tolist()) - {PAD})
  found = []
  for name in names:
    own = end_steps if end_steps and name in ends else steps
    for anchor in (LEFT, RIGHT) if name in ends else (LEFT,):
      offset, along = _offsets(rows, keys, said, name, anchor)
      by_sign = absolute and name in ends
      for matrix in _matrices(offset, own, anchor, by_sign):
        # Every intercept that occurs: key's offset - M · row's.
        moved = offset[None] - (along @ matrix.T)[:, None]
        for c in np.unique(moved.reshape(-1, moved.shape[-1]), axis=0):
          found.append((row_segment, name, anchor, matrix, c))
  columns = zip(*found, strict=True)
  return Candidates(*(np.array(column, np.int32) for column in columns))


def _offsets(rows, keys, said, name: int, anchor: int):
  """Offsets [S', A] of a segment's keys, and [T', A] of the rows."""
  there = keys.segment[0] == name
  offset, along = (
    keys.left[0] if anchor == LEFT else keys.right[0],
    rows.left[0],
  )
  if name == WHOLE:  # one segment along the first axis
    there = keys.segment[0] != PAD
    index = keys.index if anchor == LEFT else keys.index_right()[0]
    first = np.arange(rows.axes) == 0
    offset, along = (
      x[:, None] * first for x in (np.asarray(index), rows.index)
    )
  return offset[there], along[said]


def _matrices(offset, steps, anchor: int, by_sign: bool) -> list:
  """M of every direction: an axis on which all keys are one is not followed.
  By sign, each direction belongs to one anchor."""
  axes = offset.shape[-1]
  extends = [len(np.unique(offset[:, axis])) > 1 for axis in range(axes)]
  choices = [steps if extent else (0,) for extent in extends]
  sign = 1 if anchor == LEFT else -1
  return [
    sign * np.diag(step)
    for step in itertools.product(*choices)
    if not by_sign or (step[0] < 0) == (anchor == RIGHT)
  ]


def near(tested: Candidates, keys, task, reach: int):
  """[2, C] bool: lines of the first layer, and of later ones, that keep what a
  row depends on small.

  Fixed places are marks or digits that all places share (N×1's one), not live
  digits or outputs; outputs are at most `reach` rows back. The start token is a
  mark in the first layer alone: later its key is the state of the first row,
  which has seen live digits. On a grid outputs are at most `reach` cells away
  along either axis, and so are digits of operands, which are followed from the
  right end; of one along the grid's rows only the own digit is seen.

  Args:
    tested: candidates of a task that is a transducer, or a grid.
    keys: Coordinates [1, L] of the condition that they are from.
    task: says what stands where.
    reach: 1 is the row's own input and the one before.
  """
  found = []
  for segment, anchor, matrix, c in zip(*tested[1:], strict=True):
    # The axes along which the segment extends, all of which a line follows.
    operand = 0 <= segment < task.target
    axes = [*range(task.axes)]
    axes = axes if not operand else [task.along[segment] if task.along else 0]
    fixed, c = any(not matrix[x, x] for x in axes), c[axes]
    if segment == task.target + 1:
      found.append((True, False))
    elif segment == task.target:
      close = c[0] >= -1 - reach
      if task.axes > 1:
        close = (abs(c) <= reach).all()
      found.append((close and not fixed,) * 2)
    elif fixed and operand:
      c = int(c[0])
      size = int(np.sum(np.asarray(keys.segment[0]) == segment))
      left, right = (c, size - 1 - c) if anchor == LEFT else (size - 1 - c, c)
      held = task.holds(int(segment), left, right)
      found.append((held is None or held[0] in task.shared,) * 2)
    else:
      most = reach if axes[-1] == task.axes - 1 else 0
      follows = anchor == RIGHT and matrix.max() == 1 and abs(c[0]) <= most
      found.append((task.axes == 1 or follows,) * 2)
  return np.array(found).T


def first(verdict, tested: Candidates, task):
  """A Verdict on a grid's lines, those to outputs in the first layer: of the
  heads that have them in the first layer in which any has. In a later one their
  keys have seen the cells before those, and so on to the start."""
  outputs = tested.segment == task.target
  layer = np.argmax(verdict.keep.any(axis=1), axis=0)  # of each line
  found = []
  for of in verdict:
    moved = np.array(of)
    moved[0] = np.where(outputs, of[layer, :, np.arange(len(layer))].T, of[0])
    found.append(moved)
  found = type(verdict)(*found)
  found.keep[1:] &= ~outputs
  return found


def phrase(line, names) -> str:
  """One line in words, like "b: right-1·row = 0".

  Args:
    line: (row_segment, segment, anchor, matrix, intercept) of one line.
    names: segment names.
  """
  _, segment, anchor, matrix, intercept = map(np.asarray, line)
  name = "whole" if segment == WHOLE else names[int(segment)]
  end = ("left", "right")[int(anchor)]
  axes = [""] if len(intercept) == 1 else ["j", "k"]
  found = []
  for axis, label in enumerate(axes):
    row = "".join(
      f"{-int(m):+d}·row{other}"
      for m, other in zip(matrix[axis], axes, strict=True)
      if m
    )
    found.append(f"{end}{label}{row} = {int(intercept[axis])}")
  return f"{name}: {', '.join(found)}"
