"""ABC's pure part: lines from attention, against the paper's triple loop."""

import jax
import numpy as np
import plain_lines
import pytest
import untrained
from plain_lines import INF, opened, places, site_line, tokens
from pytrees import one

from lengthgen_jax import sections
from lengthgen_jax.attention import calibration
from lengthgen_jax.attention.calibration import (
  MeanAttention,
  Selection,
  candidate_lines,
  compact,
)
from lengthgen_jax.attention.lines import LEFT, RIGHT, WHOLE, Lines
from lengthgen_jax.pipelines.calibrate import check_config
from lengthgen_jax.tasks import TASKS

A, B, TARGET = range(3)  # segments


calibrate = jax.jit(calibration.calibrate, static_argnums=(2, 4))


def select(means, candidates, threshold=2.0, causal=False, **rule_fields):
  """calibration.calibrate, compiled once for all thresholds."""
  section = sections.Calibration(**rule_fields)
  args = means, candidates, causal, threshold, section
  return jax.device_get(calibrate(*args))


dense = jax.jit(lambda lines, rows, keys: lines.dense(rows, keys)[:, 0])


def outputs(rows: int):
  return places(tokens((TARGET, rows)))


def algorithm_1(attention, size, directions, kappa, maximum, causal=False):
  """Algorithm 1 of the paper after its errata, for one head, in plain loops.

  The shift for negative Δ is N-n, each cell's size starts at 0, cells without
  a line are -inf, the threshold acts on the unshifted line means; d_max is over
  one direction (Algorithm 1) or over the whole head (equation 1).
  """
  (m, n), (rows, columns) = attention.shape, size
  counted = lambda i, j: not causal or j <= i
  means = {}
  for delta in directions:
    for i, j in np.ndindex(m, n):
      if counted(i, j):
        line = (delta, j - delta * i)
        means.setdefault(line, []).append(attention[i, j])
  means = {line: np.mean(cells) for line, cells in means.items()}
  every = np.array(list(means.values()))
  threshold = every.mean() + kappa * every.std()
  result = np.full(size, -INF)
  for delta in directions:
    shift = columns - n if delta < 0 else 0
    parallel = [value for line, value in means.items() if line[0] == delta]
    highest = max(parallel) if maximum == "direction" else every.max()
    for i, j in np.ndindex(rows, columns):
      on_line = [
        attention[k + i, k * delta + j - shift]
        for k in range(-rows - m, rows + m)
        if 0 <= k + i < m
        and 0 <= k * delta + j - shift < n
        and counted(k + i, k * delta + j - shift)
      ]
      if on_line and np.mean(on_line) > threshold:
        result[i, j] = max(result[i, j], np.mean(on_line) - highest)
  return np.zeros(size) if np.isinf(result).all() else result


def absolute(values, keys, steps, used=None, causal=False, **rule_fields):
  """Candidates, absolute ones, and a Selection by one condition's attention."""
  rows = outputs(values.shape[2])
  ends = set() if causal else {WHOLE}
  candidates = candidate_lines(rows, keys, TARGET, steps, True, ends)
  used = np.ones(len(rows.index), bool) if used is None else used
  mean = MeanAttention(values, used, rows, keys)
  return candidates, select([mean], candidates, causal=causal, **rule_fields)


RULES = [
  ((1, 0), "direction", False),
  ((-1, 0, 1), "head", False),
  ((0, 1), "head", True),  # self-attention: cells at or before the row
]


@pytest.mark.parametrize("directions, maximum, causal", RULES)
def test_equals_algorithm_1_on_random_tensors(directions, maximum, causal):
  """A head without a line is transparent, as in the paper."""
  shape, size = ((6, 6), (14, 14)) if causal else ((5, 7), (11, 17))
  random = np.random.default_rng(0)
  attention = random.uniform(size=(1, 2, *shape)).astype(np.float32)
  small, large = (
    outputs(rows) if causal else places(tokens((A, columns)))
    for rows, columns in (shape, size)
  )
  counted = np.tri(*size, dtype=bool) | (not causal)
  rule = {"causal": causal, "maximum": maximum, "min_cells": 0.0}
  for kappa in (-1.0, 0.5, 40.0):
    args = attention, small, directions
    candidates, selection = absolute(*args, threshold=kappa, **rule)
    lines = compact(candidates, [selection], "each", "transparent")
    assert lines.transparent.all() == (kappa == 40.0)
    assert not causal or (lines.anchor == LEFT).all()
    bias = opened(one(lines), outputs(size[0]), large)[0, 0]
    for h in range(2):
      args = attention[0, h], size, directions, kappa, maximum, causal
      pair = bias[h][counted], algorithm_1(*args)[counted]
      np.testing.assert_allclose(*pair, atol=1e-5)


# Planted lines: (row segment, segment, anchor, M, c).


def planted(line, rows, keys):
  return plain_lines.planted([line], rows, keys, np.random.default_rng(2))


def assert_only(lines, line, rows, keys) -> None:
  """The lines are the one that was planted, at any size."""
  bias = np.asarray(dense(one(lines), rows, keys))[0, 0]
  expected = np.asarray(dense(one(site_line(*line)), rows, keys))[0, 0]
  assert (expected == 0).any()
  assert np.array_equal(bias == -INF, expected == -INF)
  np.testing.assert_allclose(lines.value[lines.valid], 0.0, atol=1e-6)


ABSOLUTE = {
  "diagonal": (TARGET, WHOLE, LEFT, 1, 2),
  "anti-diagonal": (TARGET, WHOLE, RIGHT, 1, 1),
  "vertical": (TARGET, WHOLE, LEFT, 0, 3),
}
OPERANDS = [
  (TARGET, A, RIGHT, 1, 0),
  (TARGET, B, RIGHT, 1, 1),
  (TARGET, A, LEFT, 0, 0),
  (TARGET, B, LEFT, 1, 0),
]


def operands(digits: int):
  return outputs(6 * digits // 7), places(tokens((A, digits), (B, digits)))


# Two sizes tell the ends of an operand apart. test_multiply_long.py has lines
# of grids.
@pytest.mark.parametrize("line", OPERANDS)
def test_a_planted_line_is_recovered_and_holds_at_ten_times_the_size(line):
  *small, large = map(operands, (7, 9, 70))
  means = [
    MeanAttention(planted(line, *size), size[0].segment[0] == TARGET, *size)
    for size in small
  ]
  ends = (-2, -1, 0, 1), False, {A, B}
  candidates = candidate_lines(*small[-1], TARGET, *ends)
  lines = compact(candidates, [select(means, candidates)], "each", "closed")
  assert lines.valid.sum() == 1
  assert [x[0, 0, 0, 0].item() for x in lines[1:3]] == list(line[1:3])
  assert_only(lines, line, *large)


def test_rows_that_are_not_used_say_nothing():
  """Whatever they attend to; and a line need not cross them."""
  rows, keys = outputs(12), places(tokens((A, 12)))
  line = ABSOLUTE["diagonal"]
  attention = planted(line, rows, keys)
  attention[:, :, 5:] = planted(ABSOLUTE["vertical"], rows, keys)[:, :, 5:]
  used = np.arange(12) < 5
  candidates, selection = absolute(attention, keys, (0, 1), used)
  lines = compact(candidates, [selection], "each", "closed")
  assert_only(lines, line, outputs(30), places(tokens((A, 40))))


# How lines are measured, kept and valued.


def test_released_statistics_differ_only_as_described():
  """Sums instead of means, over distinct non-zero lines, nothing subtracted."""
  keys = places(tokens((A, 12)))
  attention = planted(ABSOLUTE["anti-diagonal"], outputs(8), keys)
  _, selection = absolute(
    attention, keys, (-1, 0), line="sum", statistics="distinct", maximum="none"
  )
  kept = selection.value[selection.keep]
  np.testing.assert_allclose(kept, [0.9 * 8], rtol=1e-5)
  # Ties and zeros change μ and σ of all lines, and not of the distinct ones.
  attention = np.zeros((1, 1, 3, 6), np.float32)
  attention[..., 0], attention[..., 1:3] = 0.6, 0.2
  by_name = {"distinct": [0.6, 0.2], "all": [0.6, 0.2, 0.2, 0, 0, 0]}
  for name, strengths in by_name.items():
    keys = places(tokens((A, 6)))
    _, selection = absolute(attention, keys, (0,), statistics=name)
    score = (0.6 - np.mean(strengths)) / np.std(strengths)
    np.testing.assert_allclose(selection.score.max(), score, rtol=1e-4)


def test_short_lines_are_no_lines():
  """A corner of the matrix is one cell, however strong."""
  attention = np.full((1, 1, 6, 6), 0.01, np.float32)
  attention[0, 0, 0, 5] = 1.0
  for share, num_lines in ((0.0, 1), (0.5, 0)):
    keys = places(tokens((A, 6)))
    _, selection = absolute(attention, keys, (1,), min_cells=share)
    assert selection.keep.sum() == num_lines


# Many seeds, layers and heads as one bias.


def selection(keep, value):
  value = np.broadcast_to(np.float32(value), np.shape(keep))
  is_long = np.ones(value.shape, bool)
  return Selection(value, value, value, is_long, np.array(keep, bool))


THREE = Lines(
  *(np.array(x, np.int32) for x in ([2, 2, 2], [0, 1, 0], [0, 1, 1])),
  np.arange(3, dtype=np.int32).reshape(3, 1, 1),
  np.array([[7], [8], [9]], np.int32),
)


@pytest.mark.parametrize("empty", ("closed", "transparent"))
def test_kept_lines_are_packed_and_empty_heads_are_as_asked(empty):
  seeds = [
    selection([[[1, 0, 1], [0, 0, 0]], [[0, 1, 0], [0, 0, 1]]], [1, 2, 3]),
    selection([[[0, 0, 0], [1, 0, 0]], [[0, 0, 0], [1, 1, 0]]], [4, 5, 6]),
  ]
  lines = compact(THREE, seeds, "each", empty)
  assert lines.value.shape == (2, 2, 2, 2) and lines.value.dtype == np.float32
  heads = [
    lines.intercept[*head][lines.valid[*head]].ravel().tolist()
    for head in np.ndindex(2, 2, 2)
  ]
  assert heads == [[7, 9], [], [8], [9], [], [7], [], [7, 8]]
  values = lines.intercept[..., 0] - np.reshape([6, 3], (2, 1, 1, 1))
  assert np.array_equal(lines.value[lines.valid], values[lines.valid])
  is_empty = np.reshape([not head for head in heads], (2, 2, 2))
  assert np.array_equal(lines.transparent, is_empty & (empty == "transparent"))
  deeper = compact(THREE, seeds, "each", empty, further_layers=2)
  assert np.array_equal(deeper.valid[:, :2], lines.valid)
  assert deeper.valid.shape[1] == 4 and not deeper.valid[:, 2:].any()
  assert (deeper.transparent[:, 2:] == (empty == "transparent")).all()
  last = compact(THREE, seeds, "last", empty)
  assert last.value.shape == (2, 1, 2, 2)
  assert np.array_equal(last.valid, lines.valid[:, 1:])


def test_absolute_lines_need_no_second_width():
  """Which would tell the ends of operands apart."""
  fields = {"calibration.lengths": (2,), "calibration.lines": "absolute"}
  args = "addition", "encoder_decoder", fields
  check_config(untrained.config(*args), untrained.experiment(*args))


def test_lines_within_reach_see_few_digits():
  """Of N×1, in the first layer and in later ones: digits that move with rows,
  the marks and the single digit; a row's own input and the one before."""
  lines_and_layers = (
    ((A, RIGHT, 1, 0), (True, True)),
    ((A, LEFT, 1, 1), (False, False)),  # it moves the other way
    ((A, RIGHT, 0, 0), (False, False)),  # the last digit, for all rows
    ((A, LEFT, 0, 0), (True, True)),
    ((B, RIGHT, 0, 0), (True, True)),
    ((TARGET, LEFT, 1, -2), (True, True)),
    ((TARGET, LEFT, 1, -3), (False, False)),
    ((TARGET, LEFT, 0, 0), (False, False)),
    ((TARGET + 1, LEFT, 0, 0), (True, False)),
  )
  fields = zip(*(line for line, _ in lines_and_layers), strict=True)
  segment, anchor, matrix, intercept = map(np.array, fields)
  rows = np.full_like(segment, TARGET)
  fields = matrix[:, None, None], intercept[:, None]
  lines = Lines(rows, segment, anchor, *fields)
  keys = places(tokens((A, 8), (B, 2)))
  layers = calibration.within_reach(lines, keys, TASKS["multiply"](), 1)
  assert [*map(tuple, layers.T.tolist())] == [x for _, x in lines_and_layers]
