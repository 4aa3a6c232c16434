"""Lines mean what their formula says, at every size."""

import jax
import numpy as np
import pytest
from plain_lines import (
  INF,
  opened,
  packed,
  random_lines,
  scattered,
  site_line,
  tokens,
)
from pytrees import one

from lengthgen_jax.attention import lines as lines_module
from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.attention.lines import ANY, LEFT, RIGHT, WHOLE

A, B, TARGET, START = range(4)  # segments

dense = jax.jit(lambda lines, rows, keys: lines.dense(rows, keys))
gather = jax.jit(lambda lines, rows, keys: lines.gather(rows, keys))


# One axis: two sequences of other lengths, whose rows say the next token. Two:
# grids of other sizes, an operand along each axis.
SEQUENCES = {
  1: [
    tokens((A, 3), (B, 4), (START, 1), (TARGET, 4)),
    tokens((A, 2), (B, 3), (START, 1), (TARGET, 3)),
  ],
  2: [
    tokens((A, 1, 4), (B, 3, 1), (START, 1, 1), (TARGET, 3, 4)),
    tokens((A, 1, 3), (B, 2, 1), (START, 1, 1), (TARGET, 2, 3)),
  ],
}


@pytest.mark.parametrize("axes", SEQUENCES)
def test_both_forms_equal_plain_loops(axes):
  """Of any lines: row segments, WHOLE, padding, ties, invalid ones."""
  rows, keys = packed(*SEQUENCES[axes])
  names = (A, B, TARGET, START, WHOLE)
  for seed in range(6):
    args = (1, 2, 2, 9), axes, names, names, (ANY, TARGET, A)
    lines = random_lines(seed, *args)
    lines.transparent[:, 1, 1] = seed > 3
    lines = one(lines)
    expected = opened(lines, rows, keys)
    has_lines = ~lines.transparent[:, None, :, None, None]
    assert ((expected > -INF) & has_lines).sum() > 20
    assert np.array_equal(dense(lines, rows, keys), expected)
    sparse_bias = scattered(*gather(lines, rows, keys), len(keys.index))
    assert np.array_equal(np.where(has_lines, sparse_bias, expected), expected)


def test_a_site_without_a_line_is_closed():
  rows, keys = packed(*SEQUENCES[1])
  no_lines = lines_module.of_seed(lines_module.shared_lines([], 2), 0)
  bias = dense(no_lines, rows, keys)
  assert bias.shape[2] == 2 and (np.asarray(bias) == CLOSED).all()


TURNED = [[0, -1], [1, 0]]
DESCRIPTIONS = {
  "b: right-1·row = 0": (B, RIGHT, [[1]], [0]),
  "whole: left+2·row = -1": (WHOLE, LEFT, [[-2]], [-1]),
  "a: rightj+1·rowk = 0, rightk-1·rowj = 2": (A, RIGHT, TURNED, [0, 2]),
}


def test_a_line_is_described_by_its_equation():
  for words, fields in DESCRIPTIONS.items():
    line = lines_module.Lines(TARGET, *map(np.array, fields))
    assert line.describe(("a", "b", "target", "start")) == words


# Leaks: rows that see what comes after them.


@pytest.mark.parametrize("segment, rows", [(WHOLE, ANY), (TARGET, TARGET)])
def test_leak_check_finds_the_first_future_cell(segment, rows):
  """An output's own token is one ahead of the input at its row."""
  for m in range(-3, 4):
    for c in range(-5, 4):
      shift = c if segment == WHOLE else c + 1
      future = [(i, m * i + shift) for i in range(20) if m * i + shift > i]
      # Others are ahead of the first rows alone: the causal term's business.
      expected = (0, 0, 0) if m >= 1 and future else None
      assert site_line(rows, segment, LEFT, m, c).first_leak() == expected
  ahead = site_line(rows, segment, LEFT, 1, 1)
  safe = site_line(rows, segment, LEFT, 1, -1)
  join = lambda *x: np.concatenate(x, axis=3) if x[0].ndim > 3 else x[0]
  both = jax.tree.map(join, safe, ahead)
  assert both.first_leak() == ahead.first_leak() is not None
  padding = ahead._replace(valid=np.zeros((1, 1, 1, 1), bool))
  assert padding.first_leak() is None


def test_a_line_on_the_prompt_is_no_leak_to_the_output():
  for anchor in (LEFT, RIGHT):
    assert site_line(TARGET, A, anchor, 1, 1).first_leak() is None
  for rows in (A, ANY):
    assert site_line(rows, A, LEFT, 1, 1).first_leak() is not None


@pytest.mark.parametrize("m", [(1, 1), (2, 1), (1, 2), (1, 0), (0, 1)])
def test_on_a_grid_later_rows_and_later_digits_leak(m):
  """Found if a row far down is shown itself or what comes after it."""
  for c in np.ndindex(5, 5):
    c = np.array(c) - 2
    row = np.array((30, 30))
    ahead = tuple(m * row + c) >= tuple(row)
    leak = site_line(TARGET, TARGET, LEFT, np.diag(m), c).first_leak()
    assert (leak is not None) == ahead, c
    if leak:
      assert leak == (0, 0, 0)
