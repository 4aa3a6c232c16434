"""ABC's pure part: lines from attention, against the paper's triple loop."""

import functools

import jax
import numpy as np
import pytest
from plain_lines import INF, one_seed, opened, places, site_line, tokens

from lengthgen_jax.attention import calibration
from lengthgen_jax.attention.calibration import (
  MeanAttention,
  candidate_lines,
  compact,
)
from lengthgen_jax.attention.lines import (
  ANY,
  LEFT,
  RIGHT,
  WHOLE,
  Lines,
)

A, B, TARGET, START = range(4)  # segments


@functools.partial(jax.jit, static_argnums=(3, 4))
def _judge(conditions, tested, threshold, causal, how):
  rule = calibration.Rule(threshold=threshold, **dict(how))
  return calibration.calibrate(conditions, tested, causal, rule)


def judge(conditions, tested, threshold=2.0, causal=False, **how):
  """calibration.calibrate, compiled once for all thresholds."""
  how = tuple(sorted(how.items()))
  return jax.device_get(_judge(conditions, tested, threshold, causal, how))


dense = jax.jit(lambda lines, rows, keys: lines.dense(rows, keys)[:, 0])


def said(rows: int):
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
    own = [value for (other, _), value in means.items() if other == delta]
    highest = max(own) if maximum == "direction" else every.max()
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


def calibrate(attention, keys, directions, kappa, causal=False, **changes):
  """Absolute lines [1, N, H, K] of [N, H, T, S] attention, one condition."""
  rows = said(attention.shape[2])
  ends = set() if causal else {WHOLE}
  tested = candidate_lines(rows, keys, TARGET, directions, True, ends)
  used = np.ones(len(rows.index), bool)
  condition = MeanAttention(attention, used, rows, keys)
  how = {"causal": causal, "min_cells": 0.0} | changes
  verdict = judge([condition], tested, kappa, **how)
  return compact(tested, [verdict], "each", "transparent")


@pytest.mark.parametrize(
  "directions, maximum",
  [((1, 0), "direction"), ((-1, 0, 1), "head"), ((2, -2), "direction")],
)
def test_equals_algorithm_1_on_random_tensors(directions, maximum):
  """A head without a line is transparent, as in the paper."""
  random = np.random.default_rng(0)
  attention = random.uniform(size=(1, 2, 5, 7)).astype(np.float32)
  keys, big = places(tokens((A, 7))), places(tokens((A, 17)))
  for kappa in (-1.0, 0.5, 40.0):
    found = calibrate(attention, keys, directions, kappa, maximum=maximum)
    assert found.transparent.all() == (kappa == 40.0)
    ours = opened(one_seed(found), said(11), big)[:, 0]
    for h in range(2):
      args = attention[0, h], (11, 17), directions, kappa, maximum
      np.testing.assert_allclose(ours[0, h], algorithm_1(*args), atol=1e-5)


def test_self_attention_counts_only_cells_at_or_before_the_row():
  attention = np.random.default_rng(1).uniform(size=(1, 2, 6, 6))
  attention = attention.astype(np.float32)
  small, big = said(6), said(14)
  for kappa in (-1.0, 0.87):
    found = calibrate(attention, small, (0, 1), kappa, causal=True)
    assert (found.anchor == LEFT).all()
    ours = opened(one_seed(found), big, big)[:, 0]
    below = np.tril_indices(14)
    for h in range(2):
      args = attention[0, h], (14, 14), (0, 1), kappa, "head", True
      wanted = algorithm_1(*args)
      np.testing.assert_allclose(ours[0, h][below], wanted[below], atol=1e-5)


# Planted lines: (row segment, segment, anchor, M, c).


def planted(line, rows, keys):
  """[1, 1, T, S] attention: 0.9 on the line, a little noise elsewhere."""
  cells = opened(one_seed(site_line(*line)), rows, keys)[:, 0] == 0
  noise = np.random.default_rng(2).uniform(0, 0.05, cells.shape)
  return np.where(cells, 0.9, noise).astype(np.float32)


def recovered(line, sizes, steps, ends, row_segment=TARGET, threshold=2.0):
  """The lines of attention that was planted at (rows, keys) of some sizes.

  Only rows of `row_segment` are used, as in a run.
  """
  conditions = [
    MeanAttention(
      planted(line, rows, keys), rows.segment[0] == row_segment, rows, keys
    )
    for rows, keys in sizes
  ]
  tested = candidate_lines(*sizes[-1], row_segment, steps, WHOLE in ends, ends)
  verdict = judge(conditions, tested, threshold)
  return compact(tested, [verdict], "each", "closed")


def assert_only(found, line, rows, keys) -> None:
  """The lines found are the one that was planted, at any size."""
  ours = np.asarray(dense(one_seed(found), rows, keys))[0, 0]
  wanted = np.asarray(dense(one_seed(site_line(*line)), rows, keys))[0, 0]
  assert (wanted == 0).any()
  assert np.array_equal(ours == -INF, wanted == -INF)
  values = np.asarray(found.value)[np.asarray(found.valid)]
  np.testing.assert_allclose(values, 0.0, atol=1e-6)


ABSOLUTE = {
  "diagonal": (TARGET, WHOLE, LEFT, 1, 2),
  "anti-diagonal": (TARGET, WHOLE, RIGHT, 1, 1),
  "vertical": (TARGET, WHOLE, LEFT, 0, 3),
  "slope -2": (TARGET, WHOLE, RIGHT, 2, 1),
}


@pytest.mark.parametrize("name", ABSOLUTE)
def test_an_absolute_line_is_found_and_holds_at_ten_times_the_size(name):
  small = said(6), places(tokens((A, 13)))
  found = recovered(ABSOLUTE[name], [small], (-2, -1, 0, 1), {WHOLE})
  assert_only(found, ABSOLUTE[name], said(60), places(tokens((A, 130))))


OPERANDS = [
  (TARGET, A, RIGHT, 1, 0),
  (TARGET, B, RIGHT, 1, 1),
  (TARGET, A, LEFT, 0, 0),
  (TARGET, B, LEFT, 1, 0),
]


@pytest.mark.parametrize("line", OPERANDS)
def test_an_operand_line_is_found_and_holds_at_ten_times_the_size(line):
  """Two sizes tell the ends of an operand apart."""
  at = lambda n, rows: (said(rows), places(tokens((A, n), (B, n))))
  found = recovered(line, [at(7, 6), at(9, 6)], (-1, 0, 1), {A, B})
  assert [int(x[0, 0, 0, 0].item()) for x in found[:4]] == list(line[:4])
  assert_only(found, line, *at(70, 60))


GRID = [
  (TARGET, TARGET, LEFT, np.eye(2), (-1, 1)),  # the sum so far
  (TARGET, A, RIGHT, np.diag((0, 1)), (0, 0)),  # digit k of an operand
  (TARGET, B, LEFT, np.diag((1, 0)), (1, 0)),  # a digit for every row j
]


def grid(rows: int, digits: int):
  """One sequence of two operands, and a grid of N x M outputs."""
  own = tokens((A, 1, digits), (B, rows + 1, 1), (TARGET, rows, digits))
  return places(own), places(own)


@pytest.mark.parametrize("line", GRID)
def test_a_line_of_two_axes_is_found_and_holds_at_ten_times_the_size(line):
  """N and M differ, at both sizes."""
  small = [grid(4, 5), grid(5, 6)]
  found = recovered(line, small, (-1, 0, 1), {A, B}, threshold=6.0)
  assert found.valid.sum() == 1
  assert np.array_equal(found.matrix[0, 0, 0, 0], line[3])
  assert np.array_equal(found.intercept[0, 0, 0, 0], line[4])
  assert_only(found, line, *grid(40, 50))


def test_a_line_belongs_to_the_rows_of_one_segment():
  """What other rows attend to is nobody's line."""
  at = lambda n: (
    places(tokens((A, n), (TARGET, n))),
    places(tokens((B, n), (A, n))),
  )
  line = (TARGET, B, LEFT, 1, 0)
  found = recovered(line, [at(6), at(8)], (0, 1), {A, B})
  assert (found.row_segment == TARGET).all()
  assert_only(found, line, *at(60))
  # The same attention of the other rows: no line stands out.
  other = recovered((A, *line[1:]), [at(6), at(8)], (0, 1), {A, B})
  assert not other.valid.any() and not other.transparent.any()


def test_rows_that_are_not_used_say_nothing():
  """Whatever they attend to; and a line need not cross them."""
  rows, keys = said(12), places(tokens((A, 12)))
  line = ABSOLUTE["diagonal"]
  attention = planted(line, rows, keys)
  attention[:, :, 5:] = planted(ABSOLUTE["vertical"], rows, keys)[:, :, 5:]
  used = np.arange(12) < 5
  condition = MeanAttention(attention, used, rows, keys)
  tested = candidate_lines(rows, keys, TARGET, (0, 1), True, {WHOLE})
  for how in ({}, {"rule": "mass", "threshold": 5.0}):
    verdict = judge([condition], tested, **how)
    found = compact(tested, [verdict], "each", "closed")
    assert_only(found, line, said(30), places(tokens((A, 40))))


def test_a_line_that_moves_with_the_width_is_dropped():
  """A sink at a fixed offset from the wrong end holds at one width only."""
  at = lambda n: (said(6), places(tokens((A, n), (B, n))))
  conditions = []
  for size in (7, 9):
    # Left offset 1, as a line that counts from the right end would have it.
    rows, keys = at(size)
    attention = planted((ANY, A, RIGHT, 0, size - 2), rows, keys)
    used = np.ones(6, bool)
    conditions.append(MeanAttention(attention, used, rows, keys))
  tested = candidate_lines(*at(9), TARGET, (0,), False, {A, B})
  verdict = judge(conditions, tested)
  (kept,) = np.flatnonzero(verdict.keep[0, 0])
  fields = [np.asarray(x)[kept].item() for x in tested]
  assert fields == [TARGET, A, LEFT, 0, 1]
  # Of one width alone, the other end is as good.
  verdict = judge(conditions[:1], tested)
  assert verdict.keep[0, 0].sum() > 1


# How lines are measured, kept and valued.


def strengths(**changes):
  """A Selection of lines from an anti-diagonal, and its candidates."""
  rows, keys = said(8), places(tokens((A, 12)))
  attention = planted(ABSOLUTE["anti-diagonal"], rows, keys)
  tested = candidate_lines(rows, keys, TARGET, (-1, 0), True, {WHOLE})
  condition = MeanAttention(attention, np.ones(8, bool), rows, keys)
  return tested, judge([condition], tested, **changes)


def test_mass_keeps_what_random_attention_would_not_hold():
  rows, keys = said(8), places(tokens((A, 12)))
  line = ABSOLUTE["anti-diagonal"]
  tested, verdict = strengths(rule="mass", threshold=3.0)
  found = compact(tested, [verdict], "each", "closed")
  assert_only(found, line, said(30), places(tokens((A, 40))))
  attention = planted(line, rows, keys)
  best = float(verdict.score.max())
  np.testing.assert_allclose(best, 0.9 / attention.mean(), rtol=1e-4)


def test_released_statistics_differ_only_as_described():
  """Sums instead of means, over distinct non-zero lines, nothing subtracted."""
  _, verdict = strengths(
    line="sum", statistics="distinct", maximum="none", threshold=2.0
  )
  keep = np.asarray(verdict.keep)
  assert keep.sum() == 1
  np.testing.assert_allclose(verdict.value[keep], [0.9 * 8], rtol=1e-5)
  # Ties and zeros change μ and σ of all lines, and not of the distinct ones.
  rows, keys = said(3), places(tokens((A, 6)))
  attention = np.zeros((1, 1, 3, 6), np.float32)
  attention[..., 0], attention[..., 1:3] = 0.6, 0.2
  condition = MeanAttention(attention, np.ones(3, bool), rows, keys)
  tested = candidate_lines(rows, keys, TARGET, (0,), True, {WHOLE})
  for name, over in (
    ("distinct", [0.6, 0.2]),
    ("all", [0.6, 0.2, 0.2, 0, 0, 0]),
  ):
    verdict = judge([condition], tested, statistics=name)
    wanted = (0.6 - np.mean(over)) / np.std(over)
    np.testing.assert_allclose(verdict.score.max(), wanted, rtol=1e-4)


def test_the_maximum_is_of_the_direction_the_head_or_none():
  tested, none = strengths(maximum="none")
  plain = np.asarray(none.value)[0, 0]
  head = np.asarray(strengths(maximum="head")[1].value)[0, 0]
  np.testing.assert_allclose(head, plain - plain.max(), atol=1e-6)
  own = np.asarray(strengths(maximum="direction")[1].value)[0, 0]
  step = tested.matrix[:, 0, 0]
  for m in set(step.tolist()):
    same = step == m
    wanted = plain[same] - plain[same].max()
    np.testing.assert_allclose(own[same], wanted, atol=1e-6)
  assert np.abs(own - head).max() > 0.1


def test_short_lines_are_no_lines():
  """A corner of the matrix is one cell, however strong."""
  rows, keys = said(6), places(tokens((A, 6)))
  attention = np.full((1, 1, 6, 6), 0.01, np.float32)
  attention[0, 0, 0, 5] = 1.0
  condition = MeanAttention(attention, np.ones(6, bool), rows, keys)
  tested = candidate_lines(rows, keys, TARGET, (1,), True, {WHOLE})
  for share, kept in ((0.0, 1), (0.5, 0)):
    verdict = judge([condition], tested, min_cells=share)
    assert verdict.keep.sum() == kept


# Many seeds, layers and heads as one bias.


def verdict(keep, value):
  shape = np.shape(keep)
  value = np.broadcast_to(np.float32(value), shape)
  return calibration.Selection(value, value, value, np.array(keep, bool))


THREE = Lines(
  *(np.array(x, np.int32) for x in ([2, 2, 2], [0, 1, 0], [0, 1, 1])),
  np.arange(3, dtype=np.int32).reshape(3, 1, 1),
  np.array([[7], [8], [9]], np.int32),
)


@pytest.mark.parametrize("empty", calibration.CHOICES["empty_heads"])
def test_kept_lines_are_packed_and_empty_heads_are_as_asked(empty):
  first = verdict([[[1, 0, 1], [0, 0, 0]], [[0, 1, 0], [0, 0, 1]]], [1, 2, 3])
  second = verdict([[[0, 0, 0], [1, 0, 0]], [[0, 0, 0], [1, 1, 0]]], [4, 5, 6])
  found = compact(THREE, [first, second], "each", empty)
  assert found.value.shape == (2, 2, 2, 2) and found.value.dtype == np.float32
  lines = {
    place: [
      (int(found.intercept[*place, k, 0]), float(found.value[*place, k]))
      for k in range(2)
      if found.valid[*place, k]
    ]
    for place in np.ndindex(2, 2, 2)
  }
  assert lines[0, 0, 0] == [(7, 1.0), (9, 3.0)] and lines[0, 0, 1] == []
  assert lines[0, 1, 0] == [(8, 2.0)] and lines[0, 1, 1] == [(9, 3.0)]
  assert lines[1, 0, 1] == [(7, 4.0)] and lines[1, 1, 1] == [(7, 4.0), (8, 5.0)]
  none = [[[False, True], [False, False]], [[True, False], [True, False]]]
  assert np.array_equal(found.transparent, np.array(none) & (empty[0] == "t"))
  last = compact(THREE, [first, second], "last", empty)
  assert last.value.shape == (2, 1, 2, 2)
  assert np.array_equal(last.valid, found.valid[:, 1:])
