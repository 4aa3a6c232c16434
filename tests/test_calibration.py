"""ABC's pure part: lines from attention, against the paper's triple loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_lines import random_lines

from lengthgen_jax import bias_file, coordinates
from lengthgen_jax.attention import biases, calibration, lines, relative
from lengthgen_jax.attention.kernel import CLOSED, biased_attention
from lengthgen_jax.attention.lines import (
  LEFT,
  RIGHT,
  WHOLE,
  SiteLines,
  dense,
  leak,
  leak_dense,
)
from lengthgen_jax.coordinates import segments
from lengthgen_jax.errors import UsageError


def algorithm_1(attention, size, directions, kappa, causal=False):
  """Algorithm 1 of the paper after its errata, for one head, in plain loops.

  The shift for negative Δ is N-n, each cell's size starts at 0, cells without
  a line are -inf, the threshold acts on the unshifted line means and d_max is
  over all lines (equation 1).
  """
  (m, n), (rows, columns) = attention.shape, size
  counted = lambda i, j: not causal or j <= i
  means = {}
  for delta in directions:
    for i in range(m):
      for j in range(n):
        if counted(i, j):
          means.setdefault((delta, j - delta * i), []).append(attention[i, j])
  means = {line: np.mean(cells) for line, cells in means.items()}
  every = np.array(list(means.values()))
  threshold = every.mean() + kappa * every.std()
  result = np.full(size, -np.inf)
  for delta in directions:
    shift = columns - n if delta < 0 else 0
    for i in range(rows):
      for j in range(columns):
        total, cells = 0.0, 0
        for k in range(-rows - m, rows + m):
          a, b = k + i, k * delta + j - shift
          if 0 <= a < m and 0 <= b < n and counted(a, b):
            total += attention[a, b]
            cells += 1
        if cells and total / cells > threshold:
          value = total / cells - every.max()
          result[i, j] = max(result[i, j], value)
  return np.zeros(size) if np.isinf(result).all() else result


def calibrate(attention, keys, directions, kappa, causal=False, **changes):
  """SiteLines [1, N, H, K] of [N, H, T, S] attention under one condition."""
  rows = attention.shape[2]
  tested = calibration.candidates(
    keys, rows, directions, absolute=not causal, both_anchors=not causal
  )
  rule = calibration.Rule(threshold=kappa, **({"min_cells": 0.0} | changes))
  condition = calibration.Condition(attention, np.ones(rows, bool), keys)
  verdict = calibration.calibrate([condition], tested, causal, rule)
  return calibration.compact(tested, [verdict], "each", "transparent")


def head(site_lines: SiteLines) -> SiteLines:
  return SiteLines(*(x[0] for x in site_lines))


@pytest.mark.parametrize("directions", [(-1,), (1, 0), (-1, 0, 1), (2, -2)])
@pytest.mark.parametrize("kappa", [-1.0, 0.3, 1.5, 40.0])
def test_equals_algorithm_1_on_random_tensors(directions, kappa):
  random = np.random.default_rng(0)
  attention = random.uniform(size=(2, 2, 5, 7)).astype(np.float32)
  keys, big = coordinates.segments(7), coordinates.segments(17)
  found = head(calibrate(attention, keys, directions, kappa))
  ours = dense(found, np.arange(11), big)
  for layer in range(2):
    for h in range(2):
      wanted = algorithm_1(attention[layer, h], (11, 17), directions, kappa)
      np.testing.assert_allclose(ours[layer, h], wanted, atol=1e-5)


@pytest.mark.parametrize("kappa", [-1.0, 0.87])
def test_self_attention_counts_only_cells_at_or_before_the_row(kappa):
  attention = np.random.default_rng(1).uniform(size=(1, 2, 6, 6))
  attention = attention.astype(np.float32)
  rows = np.arange(6)
  found = head(
    calibrate(attention, coordinates.target(rows), (0, 1), kappa, causal=True)
  )
  big = np.arange(14)
  ours = np.array(dense(found, big, coordinates.target(big)))
  for h in range(2):
    wanted = algorithm_1(attention[0, h], (14, 14), (0, 1), kappa, causal=True)
    below = np.tril_indices(14)
    np.testing.assert_allclose(ours[0, h][below], wanted[below], atol=1e-5)


PLANTED = {
  "diagonal": (WHOLE, LEFT, 1, 2),
  "anti-diagonal": (WHOLE, RIGHT, -1, 1),
  "vertical": (WHOLE, LEFT, 0, 3),
  "slope 2": (WHOLE, RIGHT, -2, 1),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_absolute_line_is_recovered_at_ten_times_the_size(name):
  line = PLANTED[name]
  attention = planted([line], coordinates.segments(13), rows=6)
  found = head(
    calibrate(
      attention, coordinates.segments(13), (-2, -1, 0, 1), 3, min_cells=0.5
    )
  )
  assert_open(found, [line], coordinates.segments(130), rows=60)


@pytest.mark.parametrize(
  "line",
  [(0, RIGHT, -1, 0), (1, RIGHT, -1, 1), (0, LEFT, 0, 0), (1, LEFT, 1, 0)],
)
def test_planted_operand_line_is_recovered_at_ten_times_the_size(line):
  conditions, sizes = [], (7, 9)
  for size in sizes:
    keys = coordinates.segments(size, size)
    attention = planted([line], keys, rows=6)
    conditions.append(calibration.Condition(attention, np.ones(6, bool), keys))
  tested = calibration.candidates(keys, 6, (-1, 0, 1), False, True)
  verdict = calibration.calibrate(
    conditions, tested, False, calibration.Rule(threshold=2.0)
  )
  found = head(calibration.compact(tested, [verdict], "each", "closed"))
  assert_open(found, [line], coordinates.segments(70, 70), rows=60)


def test_a_line_that_moves_with_the_width_is_dropped():
  """A sink at a fixed offset from the wrong end holds at one width only."""
  conditions = []
  for size in (7, 9):
    keys = coordinates.segments(size, size)
    line = (0, RIGHT, 0, size - 2)  # left offset 1: anchored left it is real
    conditions.append(
      calibration.Condition(planted([line], keys, 6), np.ones(6, bool), keys)
    )
  tested = calibration.candidates(keys, 6, (0,), False, True)
  rule = calibration.Rule(threshold=2.0)
  verdict = calibration.calibrate(conditions, tested, False, rule)
  kept = np.flatnonzero(verdict.keep[0, 0])
  assert [tuple(int(c[k]) for c in tested) for k in kept] == [(0, LEFT, 0, 1)]


def planted(lines, keys, rows):
  """[1, 1, T, S] attention: 0.9 on the lines, a little noise elsewhere."""
  noise = np.random.default_rng(2).uniform(0, 0.05, (rows, len(keys.segment)))
  for line in lines:
    bias = dense(one_line(line), np.arange(rows), keys)[0, 0]
    noise = np.where(bias == 0, 0.9, noise)
  return noise[None, None].astype(np.float32)


def one_line(line, value=0.0):
  ints = [np.full((1, 1, 1), x, np.int32) for x in line]
  return SiteLines(
    *ints,
    value=np.full((1, 1, 1), value, np.float32),
    valid=np.ones((1, 1, 1), bool),
    transparent=np.zeros((1, 1), bool),
  )


def assert_open(found, lines, keys, rows):
  ours = np.array(dense(found, np.arange(rows), keys))[0, 0]
  wanted = np.full_like(ours, CLOSED)
  for line in lines:
    bias = np.array(dense(one_line(line), np.arange(rows), keys))[0, 0]
    wanted = np.maximum(wanted, bias)
  assert (wanted == 0).any()
  np.testing.assert_array_equal(ours == CLOSED, wanted == CLOSED)


def test_mass_rule_keeps_what_random_attention_would_not_hold():
  keys = coordinates.segments(12)
  line = PLANTED["anti-diagonal"]
  attention = planted([line], keys, rows=8)
  found = head(
    calibrate(attention, keys, (-1, 0), 3.0, rule="mass", min_cells=0.5)
  )
  assert_open(found, [line], coordinates.segments(40), rows=30)


def test_released_statistics_differ_only_as_described():
  """Sums over distinct non-zero lines, nothing subtracted: the values are the
  sums themselves."""
  keys = coordinates.segments(12)
  attention = planted([PLANTED["anti-diagonal"]], keys, rows=8)
  found = calibrate(
    attention,
    keys,
    (-1,),
    2.0,
    line="sum",
    statistics="distinct",
    maximum="none",
  )
  values = found.value[found.valid]
  np.testing.assert_allclose(values, [0.9 * 8], rtol=1e-5)


def test_the_input_is_not_changed():
  attention = np.random.default_rng(3).uniform(size=(1, 1, 4, 6))
  before = attention.copy()
  calibrate(attention, coordinates.segments(6), (-1, 0, 1), 0.5)
  np.testing.assert_array_equal(attention, before)


def test_calibration_compiles_and_agrees():
  keys = coordinates.segments(6)
  attention = np.random.default_rng(4).uniform(size=(1, 2, 4, 6))
  tested = calibration.candidates(keys, 4, (-1, 0), True, True)
  condition = calibration.Condition(attention, np.ones(4, bool), keys)
  rule = calibration.Rule(threshold=0.5)
  plain = calibration.calibrate([condition], tested, False, rule)
  jitted = jax.jit(calibration.calibrate, static_argnames=("causal", "rule"))
  for a, b in zip(
    plain, jitted([condition], tested, causal=False, rule=rule), strict=True
  ):
    np.testing.assert_allclose(a, b, rtol=1e-5)


def test_transparent_head_stays_causal_by_gradient():
  rows = jnp.arange(5)
  empty = one_line((0, LEFT, 1, 0))._replace(
    valid=np.zeros((1, 1, 1), bool), transparent=np.ones((1, 1), bool)
  )
  bias = biases.total(
    biases.BiasConfig("file"),
    {"self": empty},
    "self",
    1,
    rows,
    coordinates.target(rows),
  )[0]
  q, k, v = jax.random.normal(jax.random.key(0), (3, 1, 5, 1, 4))
  context = lambda v: biased_attention(q, k, v, bias)[0][0, :, 0].sum(-1)
  reach = np.abs(jax.jacobian(context)(v)[:, 0, :, 0]).sum(-1)
  np.testing.assert_array_equal(reach > 0, np.tril(np.ones((5, 5), bool)))


def test_bias_file_round_trip(tmp_path):
  bias = {
    "self": SiteLines(*(x[None] for x in one_line((0, LEFT, 1, -1), -0.5))),
    "cross": SiteLines(*(x[None] for x in one_line((1, RIGHT, -1, 0), 0.0))),
  }
  bias_file.save(tmp_path / "bias.npz", bias, {"seeds": [3]})
  loaded, meta = bias_file.load(tmp_path / "bias.npz")
  assert meta == {"seeds": [3]}
  for site in bias:
    for a, b in zip(bias[site], loaded[site], strict=True):
      np.testing.assert_array_equal(a, b)
      assert a.dtype == b.dtype


def test_dense_import_equals_lines(tmp_path):
  rows, keys = np.arange(5), coordinates.segments(6)
  own = one_line((0, RIGHT, -1, 0), -0.25)
  matrix = np.array(dense(own, rows, keys))
  np.savez(
    tmp_path / "dense.npz", cross=np.where(matrix == CLOSED, -1e6, matrix)
  )
  imported, _ = bias_file.load(tmp_path / "dense.npz")
  config = biases.BiasConfig("file")
  for part in (rows, rows[2:4]):
    totals = [
      biases.total(config, bias, "cross", 1, part, keys)
      for bias in ({"cross": own}, {"cross_dense": imported["cross_dense"][0]})
    ]
    np.testing.assert_array_equal(*totals)


@pytest.mark.parametrize(
  ("arrays", "words"),
  [
    ({"cross": np.full((1, 2, 3, 4), np.nan)}, "NaN"),
    ({"cross": np.zeros((3, 4))}, "shape"),
    ({"other": np.zeros(3)}, "self"),
  ],
)
def test_bad_bias_files_are_refused_in_one_line(tmp_path, arrays, words):
  np.savez(tmp_path / "bad.npz", **arrays)
  with pytest.raises(UsageError, match=words) as error:
    bias_file.load(tmp_path / "bad.npz")
  assert "\n" not in str(error.value)


def test_leaks_are_found_and_named():
  safe = SiteLines(*(x[None] for x in one_line((0, LEFT, 1, -1))))
  ahead = SiteLines(*(x[None] for x in one_line((0, LEFT, 1, 1))))
  steep = SiteLines(*(x[None] for x in one_line((0, LEFT, 2, -3))))
  column = SiteLines(*(x[None] for x in one_line((0, LEFT, 0, 2))))
  assert leak(safe) is None
  assert leak(ahead) == (0, 0, 0, 0, 1)
  assert leak(steep) == (0, 0, 0, 4, 5)
  assert leak(column) is None  # the causal term closes it in rows 0 and 1
  matrix = np.full((1, 1, 1, 4, 4), CLOSED)
  assert leak_dense(matrix) is None
  matrix[0, 0, 0, 1, 3] = 0.0
  assert leak_dense(matrix) == (0, 0, 0, 1, 3)


def test_soft_bias_keeps_closed_cells_finite_but_not_the_future():
  rows = jnp.arange(4)
  own = one_line((0, LEFT, 1, 0), -0.5)
  soft = biases.BiasConfig("file", scale=2.0, closed=-3.0)
  bias = np.array(
    biases.total(soft, {"self": own}, "self", 1, rows, coordinates.target(rows))
  )[0, 0]
  np.testing.assert_allclose(np.diag(bias), -1.0)
  assert (bias[np.tril_indices(4, -1)] == -3.0).all()
  assert (bias[np.triu_indices(4, 1)] == CLOSED).all()


def test_relative_tables_are_the_same_bias_at_every_size():
  for seed in range(10):
    site_lines = random_lines(seed)
    found = relative.tables(site_lines)
    assert found
    for size in (3, 30):
      keys, rows = segments(size, size + 1), np.arange(size)
      expected = lines.dense(site_lines, jnp.arange(size), keys)
      got = relative.dense(found, rows, keys)
      assert np.array_equal(got, np.asarray(expected))


def test_relative_tables_on_disk(tmp_path):
  site_lines = random_lines(0)
  relative.save(tmp_path / "relative.npz", {"cross": site_lines})
  with np.load(tmp_path / "relative.npz") as file:
    for i, table in enumerate(relative.tables(site_lines)):
      assert np.array_equal(file[f"cross_{i}_values"], table.values)
      assert tuple(file[f"cross_{i}_line"]) == table[:4]
