"""Kernel, biases, lines and positions, and what they mean for a model."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from random_lines import random_lines

from configs import base
from lengthgen_jax import coordinates, experiment
from lengthgen_jax.attention import biases, lines, positions
from lengthgen_jax.attention.biases import BIASES, BiasConfig
from lengthgen_jax.attention.kernel import (
  CLOSED,
  biased_attention,
  gathered_attention,
)
from lengthgen_jax.attention.lines import LEFT, RIGHT
from lengthgen_jax.attention.positions import PositionConfig
from lengthgen_jax.tasks import ARITHMETIC as TASKS
from lengthgen_jax.tasks.vocabulary import ARITHMETIC

INF = float("inf")
HEADS = 2


def normal(seed, *shape):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


attend = jax.jit(biased_attention)
dense_bias = jax.jit(lines.dense)
total_bias = jax.jit(biases.total, static_argnums=(0, 2, 3))
gather = jax.jit(biases.total_gathered, static_argnums=(0, 2))


def one_seed(site_lines):
  """Lines of the first seed, without the seeds axis."""
  return jax.tree.map(lambda x: x[0], site_lines)


def drawing(bias_TxS):
  """One string per row: `.` open, `x` closed."""
  return ["".join(".x"[int(v == -INF)] for v in row) for row in bias_TxS]


# The kernel.


def softmax_reference(query, key, value, bias):
  """Plain attention in float64, one row and head at a time."""
  query, key, value = (x.astype(np.float64) for x in (query, key, value))
  batch, rows, heads, size = query.shape
  context = np.zeros(query.shape)
  weights = np.zeros((batch, heads, rows, key.shape[1]))
  for b, t, h in np.ndindex(batch, rows, heads):
    logits = key[b, :, h] @ query[b, t, h] / np.sqrt(size) + bias[h, t]
    if logits.max() > -INF:
      exp = np.exp(logits - logits.max())
      weights[b, h, t] = exp / exp.sum()
    context[b, t, h] = weights[b, h, t] @ value[b, :, h]
  return context, weights


@pytest.mark.parametrize("scale", (1.0, 100.0))
def test_kernel_equals_plain_softmax(scale):
  query, key, value = normal(0, 2, 5, 3, 4), normal(1, 2, 7, 3, 4), None
  query, value = query * scale, normal(2, 2, 7, 3, 4)
  bias = normal(3, 3, 5, 7)
  bias[normal(4, 3, 5, 7) > 0.5] = -INF
  bias[1, 2] = -INF
  context, weights, scores = attend(query, key, value, bias)
  expected_context, expected_weights = softmax_reference(
    query, key, value, bias
  )
  np.testing.assert_allclose(weights, expected_weights, atol=2e-6 * scale)
  np.testing.assert_allclose(context, expected_context, atol=1e-5 * scale)
  expected = np.einsum("bthk,bshk->bhts", query, key) / 2  # sqrt(4)
  np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4 * scale)
  assert np.all(np.asarray(weights)[:, bias == -INF] == 0)


def test_a_row_with_nothing_open_has_zero_context_and_gradients():
  arrays = normal(0, 1, 3, 2, 4), normal(1, 1, 5, 2, 4), normal(2, 1, 5, 2, 4)
  bias = np.zeros((2, 3, 5), np.float32)
  bias[:, 1] = -INF
  context, weights, _ = biased_attention(*arrays, bias)
  assert np.all(np.asarray(context)[:, 1] == 0)
  assert np.all(np.asarray(weights)[:, :, 1] == 0)
  assert np.all(np.asarray(context)[:, 0] != 0)

  def weighted(query, key, value, bias, weight_T):
    out = biased_attention(query, key, value, bias)[0]
    return jnp.einsum("bthk,t,k->", out, weight_T, jnp.cos(jnp.arange(4.0)))

  gradients = jax.jit(jax.grad(weighted, argnums=(0, 1, 2, 3)))
  for gradient in gradients(*arrays, bias, np.array([0.0, 1.0, 0.0])):
    assert np.all(np.asarray(gradient) == 0)
  for gradient in gradients(*arrays, bias, np.ones(3)):
    assert np.all(np.isfinite(gradient)) and np.any(np.asarray(gradient) != 0)


def test_kernel_in_bfloat16_keeps_float32_weights():
  arrays = [jnp.bfloat16(normal(i, 1, 6, 2, 8)) for i in range(3)]
  context, weights, scores = biased_attention(*arrays, jnp.zeros((2, 6, 6)))
  assert context.dtype == jnp.bfloat16
  assert weights.dtype == scores.dtype == jnp.float32
  np.testing.assert_allclose(np.asarray(weights).sum(-1), 1.0, rtol=1e-6)


# Causality.


FROM_FILE = {
  "self": [(0, LEFT, 1, 0, 0.5), (0, LEFT, 1, -1, -1.0), (0, LEFT, 0, 0, 0.0)],
  "cross": [(0, RIGHT, -1, 0, 0.0), (1, RIGHT, -1, 1, -2.0)],
  "encoder": [(lines.WHOLE, LEFT, 1, k, 0.5 * k) for k in (-1, 0, 1)],
}


def make_lines(kind, strides=(1,), width=1, windowed_encoder=False):
  """The LineBias of a kind for one seed: {} if it has none."""
  if kind == "file":
    made = {s: lines.shared_lines(FROM_FILE[s], HEADS) for s in FROM_FILE}
  elif BIASES[kind].lines is None:
    made = {}
  else:
    made = BIASES[kind].lines(strides, width, HEADS, windowed_encoder)
  return {site: one_seed(site_lines) for site, site_lines in made.items()}


def bias_of(kind, bias, site, row_T, keys, **how):
  """biases.total as an array [N or 1, H, T, S]."""
  config = BiasConfig(kind, **how)
  value = np.asarray(total_bias(config, bias, site, HEADS, row_T, keys))
  assert not np.any(np.isnan(value))
  assert value.shape[1:] == (HEADS, len(row_T), len(keys.segment))
  return value


def self_bias(kind, rows, bias, **how):
  keys = coordinates.target(jnp.arange(rows))
  return bias_of(kind, bias, "self", jnp.arange(rows), keys, **how)


value_jacobian = jax.jit(
  jax.jacrev(lambda *arrays: biased_attention(*arrays)[0], argnums=2)
)


def influence(bias_HxTxS):
  """[T, S]: whether d out_i / d value_j is not zero for some component."""
  size = bias_HxTxS.shape[-1]
  query, key, value = (normal(i, 1, size, HEADS, 4) for i in range(3))
  jacobian = np.asarray(value_jacobian(query, key, value, bias_HxTxS))
  assert np.all(np.isfinite(jacobian))
  return np.any(jacobian != 0, axis=(0, 2, 3, 4, 6, 7))


@pytest.mark.parametrize("kind", BIASES)
def test_every_bias_is_causal(kind):
  bias = self_bias(kind, 6, make_lines(kind, width=2))
  assert bias.shape == (1, HEADS, 6, 6)
  reached = influence(bias[0])
  assert not np.any(np.triu(reached, 1))
  assert np.all(np.diag(reached))
  assert np.all(np.diag(reached, -1))
  beyond_window = np.tril(reached, -3)
  assert np.any(beyond_window) == (kind != "window")


LEAKY = [(0, LEFT, 1, 1, 5.0), (0, LEFT, 0, 4, 0.0), (0, LEFT, 1, 0, 0.0)]


@pytest.mark.parametrize("transparent", (False, True))
def test_no_line_and_no_transparent_head_opens_the_future(transparent):
  site_lines = one_seed(lines.shared_lines(LEAKY, HEADS))
  site_lines = site_lines._replace(
    transparent=np.full((1, HEADS), transparent, bool)
  )
  reached = influence(self_bias("file", 6, {"self": site_lines})[0])
  assert not np.any(np.triu(reached, 1))
  expected = np.eye(6, dtype=bool)
  expected[4:, 4] = True
  if transparent:
    expected = np.tri(6, dtype=bool)
  assert np.array_equal(reached, expected)


def test_soft_cells_and_dense_matrices_are_causal_too():
  soft = self_bias("window", 6, make_lines("window"), closed=-3.0, scale=2.0)
  assert np.array_equal(influence(soft[0]), np.tri(6, dtype=bool))
  assert soft[0, 0, 5, 0] == -3.0 and soft[0, 0, 5, 5] == 0.0
  matrix = {"self_dense": normal(0, 1, HEADS, 8, 8)}
  full = self_bias("file", 6, matrix)
  assert np.array_equal(influence(full[0]), np.tri(6, dtype=bool))
  below = np.tri(6, dtype=bool)
  np.testing.assert_array_equal(
    full[0][:, below], matrix["self_dense"][0, :, :6, :6][:, below]
  )


def test_a_leak_shows_only_where_it_is_allowed():
  leaky = {"self": one_seed(lines.shared_lines(LEAKY, HEADS))}
  reached = influence(self_bias("file", 6, leaky, allow_leak=True)[0])
  expected = np.eye(6, dtype=bool) | np.eye(6, k=1, dtype=bool)
  expected[:, 4] = True
  assert np.array_equal(reached, expected)
  # Where there is no scaffold, attention stays causal.
  reached = influence(self_bias("none", 6, {}, allow_leak=True)[0])
  assert np.array_equal(reached, np.tri(6, dtype=bool))


@pytest.mark.parametrize("delta", range(-3, 4))
@pytest.mark.parametrize("intercept", range(-5, 4))
def test_leak_check_finds_the_first_future_cell(delta, intercept):
  site_lines = lines.shared_lines(
    [(0, LEFT, 1, 0, 0.0), (0, LEFT, delta, intercept, 0.0)], HEADS
  )
  columns = [(row, delta * row + intercept) for row in range(20)]
  future = [(row, column) for row, column in columns if column > row]
  if delta < 1:  # ahead of the first rows only: the causal term's business
    future = []
  expected = (0, 0, 0, *future[0]) if future else None
  assert lines.leak(site_lines) == expected
  invalid = site_lines._replace(valid=np.zeros_like(site_lines.valid))
  assert lines.leak(invalid) is None


@pytest.mark.parametrize("scale", (0.0, 1.0, -2.5))
def test_scale_multiplies_open_values_only(scale):
  make = lambda scale: self_bias("file", 5, make_lines("file"), scale=scale)
  plain, scaled = make(1.0), make(scale)
  is_open = plain > -INF
  np.testing.assert_allclose(scaled[is_open], scale * plain[is_open])
  assert np.all(scaled[~is_open] == -INF)


def test_only_self_attention_is_causal():
  keys = coordinates.segments(5)
  for site in ("cross", "encoder"):
    assert np.all(bias_of("none", {}, site, jnp.arange(5), keys) == 0)


def test_alibi_slopes_and_distances():
  bias = self_bias("alibi", 5, {})[0]
  slopes = [2.0**-4, 2.0**-8]  # 2^(-8h/H), h = 1, 2
  for head, row in np.ndindex(HEADS, 5):
    for column in range(row + 1):
      expected = -slopes[head] * (row - column)
      assert bias[head, row, column] == pytest.approx(expected)
  # In cross-attention the gap counts from the left end of the whole source.
  keys = coordinates.segments(3, 3)
  cross = bias_of("alibi", {}, "cross", jnp.arange(4), keys)
  gap = np.abs(np.arange(6)[None] - np.arange(4)[:, None])
  np.testing.assert_allclose(cross[0, 0], -slopes[0] * gap)


# Windows.


def cross_window(task, digits, width=1):
  """The windowed cross-attention of a task, one string per output row."""
  keys = task.coordinates(digits)
  rows = jnp.arange(task.target_length(digits))
  made = make_lines("window", task.strides, width)
  bias = bias_of("window", made, "cross", rows, keys)
  assert np.array_equal(bias[0, 0], bias[0, 1])
  assert set(np.unique(bias)) <= {0.0, -INF}
  return drawing(bias[0, 0])


def test_window_of_successor():
  assert cross_window(TASKS["successor"](), 4) == [
    # $0123
    "xxx..",
    "xx...",
    "x...x",
    "...xx",
    "..xxx",
  ]


def test_window_of_addition():
  assert cross_window(TASKS["addition"](), 3) == [
    # 123+456, each with the token on its left
    "xx..xx..",
    "x...x...",
    "...x...x",
    "..xx..xx",
  ]


def test_window_of_aligned_addition():
  assert cross_window(TASKS["addition"](aligned=True), 3) == [
    # $+142536
    "xxxxx...",
    "xxx....x",
    "x....xxx",
    "...xxxxx",
  ]


def test_window_of_multiplication_keeps_the_single_digit_open():
  task = TASKS["multiply"]()
  assert cross_window(task, 3) == [
    # $123*4
    "xx....",
    "x.....",
    "...x..",
    "..xx..",
  ]
  assert cross_window(task, 3, width=0) == [
    "xxx.x.",
    "xx.xx.",
    "x.xxx.",
    ".xxxx.",
  ]


def test_window_of_self_attention():
  bias = self_bias("window", 4, make_lines("window", width=1))
  assert drawing(bias[0, 0]) == [
    ".xxx",
    "..xx",
    "x..x",
    "xx..",
  ]


def test_window_of_the_encoder_runs_over_the_whole_source():
  made = make_lines("window", (1, 1), 1, True)
  keys = coordinates.segments(3, 2)
  for given in (keys, keys.absolute()):
    bias = bias_of("window", made, "encoder", jnp.arange(5), given)
    assert drawing(bias[0, 1]) == ["..xxx", "...xx", "x...x", "xx...", "xxx.."]
  assert "encoder" not in make_lines("window")


@pytest.mark.parametrize("digits", (5, 50))
def test_every_row_sees_its_own_digits_and_the_end_marker(digits):
  for task in (
    TASKS["addition"](),
    TASKS["addition"](aligned=True),
    TASKS["multiply"](),
    TASKS["parity"](),
  ):
    keys = task.coordinates(digits)
    for row, opened in enumerate(cross_window(task, digits, width=0)):
      columns = [i for i, mark in enumerate(opened) if mark == "."]
      own = []
      for segment, stride in enumerate(task.strides):
        for token in range(max(stride, 1)):
          where = (keys.segment == segment) & (
            keys.right == stride * row + token
          )
          own += np.flatnonzero(where).tolist()
      assert sorted(own) == columns


# Lines.

LINES = {
  "diagonal": (0, LEFT, 1, 2),
  "own digit": (1, RIGHT, -1, 0),
  "antidiagonal": (0, RIGHT, -1, 2),
  "antidiagonal from the left": (1, LEFT, -1, 3),
  "diagonal from the right": (0, RIGHT, 1, 4),
  "vertical": (0, LEFT, 0, 3),
  "vertical from the right": (1, RIGHT, 0, 1),
  "slope 2": (0, LEFT, 2, 1),
  "slope -2": (1, RIGHT, -2, 1),
  "sub-diagonal": (0, LEFT, 1, -1),
  "whole source": (lines.WHOLE, LEFT, 2, 3),
  "whole source from the right": (lines.WHOLE, RIGHT, -1, 4),
}


def dense(line_list, rows, keys):
  """[T, S] of lines that all heads share."""
  site_lines = one_seed(lines.shared_lines(line_list, HEADS))
  bias = np.asarray(dense_bias(site_lines, jnp.arange(rows), keys))
  assert bias.shape == (1, HEADS, rows, len(keys.segment))
  assert np.array_equal(bias[0, 0], bias[0, 1])
  return bias[0, 0]


def planted(line, rows, sizes):
  """Cells of a line, drawn column by column: `delta` columns per row."""
  segment, anchor, delta, intercept = line
  if segment == lines.WHOLE:
    segment, sizes = 0, (sum(sizes),)
  start, size = sum(sizes[:segment]), sizes[segment]
  first = intercept if anchor == LEFT else size - 1 - intercept
  cells = np.zeros((rows, sum(sizes)), bool)
  for row in range(rows):
    if 0 <= first + delta * row < size:
      cells[row, start + first + delta * row] = True
  return cells


@pytest.mark.parametrize("scale", (1, 10))
@pytest.mark.parametrize("name", LINES)
def test_a_line_lands_where_its_formula_says(name, scale):
  sizes, rows = (7 * scale, 5 * scale), 4 * scale
  keys = coordinates.segments(*sizes)
  bias = dense([(*LINES[name], -0.5)], rows, keys)
  cells = planted(LINES[name], rows, sizes)
  assert cells.sum() >= 2
  assert np.array_equal(bias, np.where(cells, -0.5, -INF).astype(np.float32))
  segment, anchor, delta, intercept = LINES[name]
  if segment == lines.WHOLE:
    segment, keys = 0, keys.absolute()
  for row, key in np.argwhere(bias > -INF):
    assert keys.segment[key] == segment
    if anchor == LEFT:
      assert keys.left[key] - delta * row == intercept
    else:
      assert keys.right[key] + delta * row == intercept


@pytest.mark.parametrize("order", (1, -1))
def test_crossing_lines_take_the_larger_value(order):
  first, second = (*LINES["vertical"], -3.0), (*LINES["diagonal"], 0.5)
  bias = dense([first, second][::order], 4, coordinates.segments(7))
  assert bias[1, 3] == 0.5
  assert bias[0, 3] == bias[2, 3] == -3.0
  assert bias[0, 2] == bias[2, 4] == 0.5
  flipped = dense(
    [(*first[:4], 0.5), (*second[:4], -3.0)][::order],
    4,
    coordinates.segments(7),
  )
  assert flipped[1, 3] == 0.5


def test_a_transparent_head_is_zero_on_existing_keys():
  site_lines = one_seed(lines.shared_lines([(*LINES["diagonal"], -2.0)], HEADS))
  site_lines = site_lines._replace(transparent=np.array([[True, False]]))
  keys = coordinates.pad(coordinates.segments(7), 9)
  bias = np.asarray(dense_bias(site_lines, jnp.arange(4), keys))[0]
  assert np.all(bias[0, :, :7] == 0)
  assert np.all(bias[:, :, 7:] == -INF)
  cells = planted(LINES["diagonal"], 4, (7,))
  assert np.array_equal(bias[1, :, :7] > -INF, cells)


def test_invalid_lines_are_ignored():
  both = [(*LINES["diagonal"], 0.0), (*LINES["vertical"], 9.0)]
  site_lines = one_seed(lines.shared_lines(both, HEADS))
  keys, rows = coordinates.segments(7), jnp.arange(4)
  valid = np.broadcast_to([True, False], site_lines.valid.shape)
  bias = dense_bias(site_lines._replace(valid=valid), rows, keys)
  assert np.array_equal(bias[0, 0], dense(both[:1], 4, keys))
  none = dense_bias(
    site_lines._replace(valid=np.zeros_like(site_lines.valid)), rows, keys
  )
  assert np.all(np.asarray(none) == -INF)


def test_layers_and_heads_have_their_own_lines_in_one_compile():
  traces = []

  @jax.jit
  def make(site_lines):
    traces.append(site_lines)
    return lines.dense(site_lines, jnp.arange(4), coordinates.segments(7, 5))

  names = list(LINES)[:4]
  for order in (names, names[::-1]):
    chosen = np.array([LINES[name] for name in order]).reshape(2, HEADS, 1, 4)
    site_lines = lines.SiteLines(
      *np.moveaxis(chosen, -1, 0).astype(np.int32),
      value=np.arange(4, dtype=np.float32).reshape(2, HEADS, 1),
      valid=np.ones((2, HEADS, 1), bool),
      transparent=np.zeros((2, HEADS), bool),
    )
    bias = np.asarray(make(site_lines))
    for i, name in enumerate(order):
      cells = planted(LINES[name], 4, (7, 5))
      expected = np.where(cells, np.float32(i), -INF)
      assert np.array_equal(bias[i // HEADS, i % HEADS], expected)
  assert len(traces) == 1


def test_target_keys_have_no_right_end():
  keys = coordinates.target(jnp.arange(50))
  on_right = [(0, RIGHT, delta, c, 0.0) for delta in (-1, 0, 1) for c in (0, 1)]
  assert np.all(dense(on_right, 50, keys) == -INF)
  cells = dense([(0, LEFT, 1, -1, 0.0)], 50, keys) == 0
  assert np.array_equal(cells, np.eye(50, k=-1, dtype=bool))


@pytest.mark.parametrize("transparent", (False, True))
def test_padding_changes_no_line(transparent):
  keys = coordinates.segments(7, 5)
  every = [(*line, 0.1 * i) for i, line in enumerate(LINES.values())]
  site_lines = one_seed(lines.shared_lines(every, HEADS))
  site_lines = site_lines._replace(
    transparent=np.full((1, HEADS), transparent, bool)
  )
  rows = jnp.arange(6)
  bias = np.asarray(dense_bias(site_lines, rows, keys))
  padded = dense_bias(site_lines, rows, coordinates.pad(keys, 20))
  assert np.array_equal(padded[..., :12], bias)
  assert np.all(np.asarray(padded)[..., 12:] == -INF)


@pytest.mark.parametrize("kind", BIASES)
def test_padding_changes_no_bias(kind):
  keys, rows = coordinates.segments(4, 4), jnp.arange(4)
  made = make_lines(kind, (1, 1))
  make = lambda keys: bias_of(kind, made, "cross", rows, keys)
  bias, padded = make(keys), make(coordinates.pad(keys, 13))
  assert np.array_equal(padded[..., :8], bias)
  assert np.all(padded[..., 8:] == -INF)


# Coordinates.


def test_absolute_coordinates_are_one_segment_without_pad():
  keys = coordinates.segments(3, 2)
  assert keys.segment.tolist() == [0, 0, 0, 1, 1]
  assert keys.left.tolist() == [0, 1, 2, 0, 1]
  assert keys.right.tolist() == [2, 1, 0, 1, 0]
  for given in (keys, coordinates.pad(keys, 8)):
    whole = given.absolute()
    assert whole.left[:5].tolist() == [0, 1, 2, 3, 4]
    assert whole.right[:5].tolist() == [4, 3, 2, 1, 0]
    assert whole.segment.tolist() == [0] * 5 + [-1] * (len(given.left) - 5)
    assert len({x.shape for x in whole}) == 1
    # A line on the whole source passes from one segment into the next.
    bias = dense([(0, LEFT, 1, 0, 0.0)], 5, whole)
    assert np.array_equal(bias[:, :5] == 0, np.eye(5, dtype=bool))
    assert np.all(bias[:, 5:] == -INF)


def test_absolute_coordinates_count_no_pad_on_the_left():
  keys = coordinates.segments(2, 2)
  keys = coordinates.Coordinates(
    *(np.concatenate([[-1, -1], x]).astype(np.int32) for x in keys)
  )
  whole = keys.absolute()
  assert whole.segment.tolist() == [-1, -1, 0, 0, 0, 0]
  assert whole.left[2:].tolist() == [0, 1, 2, 3]
  assert whole.right[2:].tolist() == [3, 2, 1, 0]


# Positions.


def test_cyclic_index_is_periodic():
  index = jnp.arange(40)
  for period in (1, 3, 8):
    shifted = positions.cyclic(index + period, period)
    assert np.array_equal(shifted, positions.cyclic(index, period))
    assert np.array_equal(np.unique(shifted), np.arange(period))
  assert np.array_equal(positions.cyclic(index, 0), index)


@pytest.mark.parametrize("period", (0, 3, 5))
def test_a_right_anchored_source_keeps_its_phase_at_every_width(period):
  config = PositionConfig("sinusoidal", period, "right")
  left = PositionConfig("sinusoidal", period, "left")
  lost = 0
  for width in (6, 8, 13, 60):
    for name in ("successor", "addition"):  # the last operand
      task = TASKS[name]()
      keys = task.coordinates(width)
      rows = positions.target_index(config, jnp.arange(width + 1))
      last = keys.segment == keys.segment.max()
      own = np.asarray(positions.source_index(config, keys))[last][::-1]
      assert np.array_equal(own, rows)
      other = np.asarray(positions.source_index(left, keys))[last][::-1]
      lost += not np.array_equal(other, rows)
    keys = TASKS["addition"](aligned=True).coordinates(width)
    index = np.asarray(positions.source_index(config, keys))[::-1]
    pair = positions.cyclic(np.arange(2 * width + 2), period)
    assert np.array_equal(index, pair)
  assert lost > 4


def test_padding_moves_no_source_index():
  keys = coordinates.segments(4, 5)
  for anchor in positions.ANCHORS:
    config = PositionConfig("sinusoidal", 0, anchor)
    index = positions.source_index(config, keys)
    padded = positions.source_index(config, coordinates.pad(keys, 15))
    assert np.array_equal(padded[:9], index)
    expected = np.arange(9) if anchor == "left" else np.arange(9)[::-1]
    assert np.array_equal(index, expected)


def test_sinusoids_tell_positions_apart():
  table = np.asarray(positions.sinusoid(jnp.arange(200), 16))
  assert table.shape == (200, 16)
  np.testing.assert_allclose((table**2).sum(-1), 8.0, rtol=1e-5)
  distance = np.abs(table[:, None] - table[None]).max(-1)
  assert np.all(distance[~np.eye(200, dtype=bool)] > 1e-3)
  np.testing.assert_allclose(table[3, [0, 8]], [np.sin(3), np.cos(3)], 1e-5)


def test_rope_scores_depend_on_the_difference_only():
  query, key = normal(0, 1, 6, 2, 8), normal(1, 1, 9, 2, 8)
  bias = jnp.zeros((2, 6, 9))

  def scores(row_shift, key_shift):
    rotated = positions.rotate(query, jnp.arange(6) + row_shift)
    keys = positions.rotate(key, jnp.arange(9) + key_shift)
    return np.asarray(biased_attention(rotated, keys, keys, bias)[2])

  plain = scores(0, 0)
  np.testing.assert_allclose(scores(37, 37), plain, atol=1e-4)
  assert np.abs(scores(0, 1) - plain).max() > 0.1
  # The unrotated position is 0, and a rotation keeps the norm.
  still = positions.rotate(query, jnp.zeros(6, jnp.int32))
  np.testing.assert_allclose(still, query, atol=1e-6)
  turned = positions.rotate(query, jnp.arange(6) * 5)
  np.testing.assert_allclose(
    np.linalg.norm(turned, axis=-1), np.linalg.norm(query, axis=-1), rtol=1e-5
  )


# A whole model.

TASK = TASKS["addition"]()
WIDTH = 4
ROWS = TASK.target_length(WIDTH)
KEYS = len(TASK.coordinates(WIDTH).segment)
SPARE = 6


@functools.cache
def model_and_params(config):
  """A tiny model whose every parameter is random, biases and norms too."""
  settings = base.get_config()
  settings.model.update(
    {
      "emb_dim": 16,
      "num_heads": HEADS,
      "mlp_dim": 32,
      "num_encoder_layers": 1,
      "num_decoder_layers": 1,
    }
  )
  settings.positions.update(dataclasses.asdict(config))
  model = experiment.build(settings).model
  batch = example()
  init = lambda key: model.init(key, batch, site_biases("none", batch))
  shapes = jax.eval_shape(init, jax.random.key(0))["params"]
  leaves, tree = jax.tree.flatten(shapes)
  filled = [
    normal(i, *leaf.shape) * (0.3 if leaf.ndim > 1 else 1.0)
    for i, leaf in enumerate(leaves)
  ]
  return model, jax.tree.unflatten(tree, filled)


@functools.cache
def example():
  operands = np.random.default_rng(0).integers(0, 10, (2, 3, WIDTH))
  return TASK.encode(list(jnp.asarray(operands, jnp.int32)))


@functools.cache
def padded_example(token="@"):
  """The example with SPARE more source tokens that no bias opens."""
  batch = example()
  source = jnp.pad(
    batch.source, ((0, 0), (0, SPARE)), constant_values=ARITHMETIC.id(token)
  )
  keys = coordinates.pad(batch.coordinates, source.shape[1])
  return batch._replace(source=source, coordinates=keys)


def site_biases(kind, batch):
  """Biases of every site, windowed encoder included."""
  made = make_lines(kind, TASK.strides, 1, windowed_encoder=True)
  keys, rows = batch.coordinates, jnp.arange(ROWS)
  whole = keys.absolute()
  where = {
    "self": (rows, coordinates.target(rows)),
    "cross": (rows, keys),
    "encoder": (whole.left, whole),
  }
  made = {
    site: biases.total(BiasConfig(kind), made, site, HEADS, *where[site])
    for site in where
  }
  return made | {"sizes": dict.fromkeys(where)}


quick_site_biases = jax.jit(site_biases, static_argnums=0)


@functools.cache
def compiled(config, kind):
  """Logits of (batch, keys that give the source's indices, first row)."""
  model, params = model_and_params(config)

  def logits(batch, index_keys, shift):
    bias = site_biases(kind, batch)
    batch = batch._replace(coordinates=index_keys)
    return model.apply(
      {"params": params}, batch, bias, shift, method=shifted_forward
    )

  return jax.jit(logits)


def shifted_forward(model, batch, bias, shift):
  """EncoderDecoder.__call__ with target rows that start at `shift`."""
  cross_kv, _ = model.encode(batch.source, batch.coordinates, bias)
  start = jnp.full_like(batch.target[:, :1], model.config.start_token)
  inputs = jnp.concatenate([start, batch.target[:, :-1]], axis=1)
  return model.decode(inputs, jnp.arange(ROWS) + shift, cross_kv, bias)[0]


@functools.cache
def causal_functions():
  """Logits of (target, biases), and a Jacobian of the decoder's layers."""
  model, params = model_and_params(PositionConfig("sinusoidal"))
  batch = example()

  def logits(target, bias):
    given = batch._replace(target=target)
    return model.apply({"params": params}, given, bias)[0]

  def decoder(rows_TxD, bias):
    bound = model.bind({"params": params})
    x, index = rows_TxD[None], jnp.arange(ROWS)
    memory = normal(1, 1, KEYS, 16)
    for layer in bound.decoder:
      x, _ = layer(
        x,
        index,
        layer.self_key_value(x, index),
        layer.cross_key_value(memory, index),
        {"self": bias["self"][0], "cross": bias["cross"][0]},
        bias["sizes"],
        False,
      )
    return x[0]

  return jax.jit(logits), jax.jit(jax.jacrev(decoder))


@pytest.mark.parametrize("kind", BIASES)
def test_a_model_sees_no_later_target(kind):
  batch, (logits, _) = example(), causal_functions()
  bias = quick_site_biases(kind, batch)
  plain = np.asarray(logits(batch.target, bias))
  assert plain.shape == (3, ROWS, len(ARITHMETIC))
  for j in range(ROWS):
    changed = batch.target.at[:, j:].set((batch.target[:, j:] + 1) % 10)
    other = np.asarray(logits(changed, bias))
    assert np.array_equal(other[:, : j + 1], plain[:, : j + 1])
    for row in range(j + 1, ROWS):
      assert np.all(np.any(other[:, row] != plain[:, row], axis=-1))


@pytest.mark.parametrize("kind", BIASES)
def test_gradients_of_a_model_are_causal(kind):
  bias = quick_site_biases(kind, example())
  jacobian = causal_functions()[1](normal(0, ROWS, 16), bias)
  reached = np.any(np.asarray(jacobian) != 0, axis=(1, 3))
  assert not np.any(np.triu(reached, 1))
  assert np.array_equal(reached, np.asarray(bias["self"][0, 0] > -INF))


PADDING_CASES = [
  ("none", PositionConfig("none")),
  ("none", PositionConfig("sinusoidal")),
  ("window", PositionConfig("sinusoidal", 3, "right")),
  ("alibi", PositionConfig("rope", 0, "right")),
]


@pytest.mark.parametrize("kind, config", PADDING_CASES)
def test_source_padding_changes_no_logit(kind, config):
  logits = compiled(config, kind)
  plain, padded = (
    np.asarray(logits(batch, batch.coordinates, 0))
    for batch in (example(), padded_example())
  )
  assert plain.std() > 0.1
  np.testing.assert_allclose(padded, plain, atol=1e-5)


def test_source_tokens_that_are_no_padding_do_matter():
  """The control of the test above: open keys change the logits."""
  logits, batch = compiled(PositionConfig("none"), "none"), padded_example()
  opened = batch._replace(coordinates=coordinates.segments(KEYS, SPARE))
  plain, other = (
    np.asarray(logits(batch, batch.coordinates, 0)) for batch in (batch, opened)
  )
  assert np.abs(other - plain).max() > 1e-2


def moved(config, row_shift, source_shift):
  """Largest change of a logit when the indices of rows and source move.

  The source moves by closed tokens that right-anchored indices count.
  """
  batch = padded_example("0")
  logits = compiled(config, "none")
  keys = coordinates.segments(KEYS + source_shift)
  plain = logits(batch, batch.coordinates, 0)
  other = logits(batch, coordinates.pad(keys, KEYS + SPARE), row_shift)
  return np.abs(np.asarray(other) - np.asarray(plain)).max()


@pytest.mark.parametrize("kind", ("sinusoidal", "learned", "rope"))
def test_a_cyclic_model_cannot_tell_one_period_from_the_next(kind):
  cyclic = PositionConfig(kind, 3, "right")
  assert moved(cyclic, 3, 0) == 0
  assert moved(cyclic, 0, 3) == 0
  assert moved(cyclic, 30, 6) == 0
  assert moved(cyclic, 1, 0) > 1e-3
  assert moved(cyclic, 0, 2) > 1e-3


@pytest.mark.parametrize("kind", ("sinusoidal", "rope"))
def test_without_a_period_the_index_matters(kind):
  plain = PositionConfig(kind, 0, "right")
  assert moved(plain, 3, 0) > 1e-3
  assert moved(plain, 0, 3) > 1e-3


def test_a_rope_model_sees_differences_of_indices_only():
  plain = PositionConfig("rope", 0, "right")
  assert moved(plain, 6, 6) < 1e-4


def test_a_model_without_positions_sees_no_index():
  plain = PositionConfig("none")
  assert moved(plain, 7, 0) == 0
  assert moved(plain, 0, 3) == 0


def test_a_window_to_one_side_leaves_the_more_significant_digits_closed():
  keys = coordinates.segments(5)
  both, previous = (
    lines.dense(
      lines.of_seed(biases.window_lines((1,), 1, 2, sides=sides), 0)["cross"],
      np.arange(5),
      keys,
    )[0, 0]
    for sides in ("both", "previous")
  )
  ahead = keys.right == np.arange(5)[:, None] + 1
  np.testing.assert_array_equal(previous, np.where(ahead, CLOSED, both))
  assert (both[ahead] == 0).all()


# Keys on lines only.


@pytest.mark.parametrize("site", ("self", "cross"))
@pytest.mark.parametrize("name", TASKS)
def test_gathered_keys_are_the_open_cells(name, site):
  for aligned in (False, True):
    task = TASKS[name](aligned=aligned)
    rows = jnp.arange(task.target_length(9))
    keys = task.coordinates(9) if site == "cross" else coordinates.target(rows)
    for seed in range(3):
      own = {site: random_lines(seed, site, len(task.segment_names))}
      config = BiasConfig("file", scale=0.5)
      expected = np.asarray(total_bias(config, own, site, HEADS, rows, keys))
      index, bias = map(np.asarray, gather(config, own, site, rows, keys))
      cells = np.full(expected.shape, -INF, np.float32)
      for place in np.argwhere(bias > -INF):
        cell = (*place[:-1], index[tuple(place)])
        assert cells[cell] == -INF, "open twice"
        cells[cell] = bias[tuple(place)]
      assert np.array_equal(cells, expected)


def test_gathered_attention_equals_dense():
  keys, rows = coordinates.segments(5, 4), jnp.arange(6)
  own = {"cross": random_lines(1)}
  own["cross"].valid[1, 1] = False
  query, key, value = (normal(i, 3, 6 if i == 0 else 9, 2, 4) for i in range(3))
  args = (BiasConfig("file"), own, "cross")
  bias = total_bias(*args, HEADS, rows, keys)[1]
  few = jax.tree.map(lambda x: x[1], gather(*args, rows, keys))
  dead = np.asarray(bias == CLOSED).all(axis=-1)
  assert dead.any() and not dead.all()

  def mean(attention, value):
    context = attention(query, key, value)
    return (context**2).sum(), context

  dense_attention = lambda q, k, v: attend(q, k, v, bias)[0]
  line_attention = lambda q, k, v: gathered_attention(q, k, v, few)
  run = jax.value_and_grad(mean, argnums=1, has_aux=True)
  (_, expected), wanted = run(dense_attention, value)
  (_, found), gradient = run(line_attention, value)
  np.testing.assert_allclose(found, expected, atol=1e-6)
  np.testing.assert_allclose(gradient, wanted, atol=1e-5)


@pytest.mark.parametrize("method", ("window_cpi", "nope_window"))
def test_a_model_says_the_same_along_lines(method):
  config = tiny.get_config(f"addition,{method}")
  config.bias.learned_scale = True
  built = experiment.build(config)
  own = one_seed(experiment.make_lines(config, built.task))
  assert built.is_sparse(own)
  params = jax.jit(built.init)(0)
  batch = built.data.sample(jax.random.key(0), 3, 20)

  @functools.partial(jax.jit, static_argnums=0)
  def logits(biases):
    bias = biases(own, 20)
    return built.model.apply({"params": params}, batch, bias)[0]

  np.testing.assert_allclose(
    logits(built.gathered_biases), logits(built.full_biases), atol=1e-5
  )


def test_transparent_heads_and_soft_cells_need_the_whole_matrix():
  config = tiny.get_config("addition,window_cpi")
  built = experiment.build(config)
  own = one_seed(experiment.make_lines(config, built.task))
  half = own["self"]._replace(transparent=np.array([[True, False]]))
  assert not built.is_sparse(own | {"self": half})
  assert not built.is_sparse({"self": own["self"]})
  config.bias.closed = -4.0
  assert not experiment.build(config).is_sparse(own)
  config.bias.closed = -1e9
  config.model.num_encoder_layers = 1
  assert not experiment.build(config).is_sparse(own)
