"""Attention normalizers against brute force: weights and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained
from command import refuses

from lengthgen_jax.attention import normalizers
from lengthgen_jax.attention.normalizers import AttentionConfig

INF = np.inf
FORMS = {
  "softmax": AttentionConfig(),
  "entmax": AttentionConfig("entmax", 1.9),
  "sparsemax": AttentionConfig("sparsemax"),
  "stick_breaking": AttentionConfig("stick_breaking"),
}


def logits(rows=40, keys=9, scale=2.0, seed=0):
  """Rows of every sharpness; some keys are closed, all of row 3, and all but
  the first of row 4."""
  rng = np.random.default_rng(seed)
  values = scale * rng.exponential(size=(rows, 1))
  values = values * rng.normal(size=(rows, keys))
  values[rng.random(values.shape) < 0.3] = -INF
  values[3] = -INF
  values[4, 1:] = -INF
  values[4, 0] = 1.0
  return values


def entmax_by_bisection(row, alpha):
  """α-entmax of one row by bisection of its threshold, in float64."""
  scaled = (alpha - 1) * row[row > -INF]
  weights = np.zeros(len(row))
  if not len(scaled):
    return weights
  low, high = scaled.max() - 1, scaled.max()
  for _ in range(200):
    middle = (low + high) / 2
    powers = np.maximum(scaled - middle, 0) ** (1 / (alpha - 1))
    low, high = (middle, high) if powers.sum() >= 1 else (low, middle)
  weights[row > -INF] = np.maximum(scaled - low, 0) ** (1 / (alpha - 1))
  return weights


def stick_breaking_loop(row):
  """Stick-breaking of one row, key by key from the last one."""
  weights, left = np.zeros(len(row)), 1.0
  for k in reversed(range(len(row))):
    share = 1 / (1 + np.exp(-row[k]))
    weights[k], left = share * left, left * (1 - share)
  return weights


def weights_of(config, values):
  """A normalizer's weights of rows [T, S]."""
  values = jnp.asarray(values)[None, None]
  index = jnp.arange(values.shape[-1])
  normalizer = normalizers.NORMALIZERS[config.normalizer]
  return normalizer.weights(values, index, config)[0, 0]


def brute_force(config, values):
  if config.normalizer == "stick_breaking":
    return np.array([stick_breaking_loop(row) for row in values])
  if config.normalizer == "softmax":
    with np.errstate(invalid="ignore"):
      exp = np.exp(values - values.max(axis=1, keepdims=True))
    return np.nan_to_num(exp / exp.sum(axis=1, keepdims=True))
  alpha = 2.0 if config.normalizer == "sparsemax" else config.alpha
  return np.array([entmax_by_bisection(row, alpha) for row in values])


@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize("name", FORMS)
def test_weights_are_those_of_their_definition(name, dtype):
  """Weights of closed keys and of keys below the threshold are exactly 0."""
  config, values = FORMS[name], logits()
  with jax.enable_x64(dtype == "float64"):
    weights = np.asarray(weights_of(config, values.astype(dtype)))
  assert weights.dtype == dtype
  expected = brute_force(config, values)
  tolerance = 1e-12 if dtype == "float64" else 2e-6
  np.testing.assert_allclose(weights, expected, rtol=0, atol=tolerance)
  assert not weights[values == -INF].any() and not weights[3].any()
  total = weights.sum(axis=1)
  if name == "stick_breaking":
    assert (total <= 1).all() and total[0] < 1
    return
  np.testing.assert_allclose(np.delete(total, 3), 1.0, atol=tolerance)
  if name != "softmax":
    zero = expected < 1e-14
    assert not weights[zero].any() and (zero & (values > -INF)).sum() > 30


@pytest.mark.parametrize("name", ("softmax", "entmax", "sparsemax"))
def test_a_single_key_has_all_of_the_weight_whatever_its_bias(name):
  values = np.float32([[-1e31, -INF], [-INF, -1e6]])
  weights = np.asarray(weights_of(FORMS[name], values))
  np.testing.assert_array_equal(weights, np.eye(2))


@pytest.mark.parametrize("alpha", (1.05, 1.5, 2.0))
def test_entmax_of_any_alpha_and_many_keys(alpha):
  """Nearly equal keys, too, where thresholds converge slowest."""
  for scale in (0.01, 1.0, 30.0):
    values = np.random.default_rng(0).normal(size=(20, 2000)) * scale
    expected = np.array([entmax_by_bisection(row, alpha) for row in values])
    with jax.enable_x64(True):
      weights = normalizers.entmax(jnp.asarray(values), alpha)
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)
    weights = normalizers.entmax(values.astype(np.float32), alpha)
    np.testing.assert_allclose(weights, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", FORMS)
def test_gradients_are_finite_differences(name):
  """In float64, of every logit of every row; of closed rows they are zero."""
  config = FORMS[name]
  values, step = logits(rows=12, scale=1.0), 1e-6
  direction = np.random.default_rng(1).normal(size=values.shape)
  with jax.enable_x64(True):
    loss = lambda x: (weights_of(config, x) * direction).sum(axis=1)
    gradient = np.asarray(jax.jit(jax.grad(lambda x: loss(x).sum()))(values))
    loss = jax.jit(loss)
    for k in range(values.shape[1]):
      change = step * np.eye(values.shape[1])[k]
      expected = (loss(values + change) - loss(values - change)) / (2 * step)
      expected = np.where(values[:, k] > -INF, expected, 0.0)
      np.testing.assert_allclose(gradient[:, k], expected, atol=1e-5)
  assert not gradient[3].any()
  # The only open key of row 4 has a weight of 1 whatever its logit is.
  assert gradient[4].any() == (name == "stick_breaking")


# What is refused.


def test_invalid_normalizers_are_refused():
  for alpha in (1.0, 2.5):
    with refuses(f"attention.alpha={alpha}", "above 1", "at most 2"):
      untrained.experiment(fields={"attention.alpha": alpha})
  with refuses("'stick_breaking'", "model.kind='decoder_only'", "sparsemax"):
    untrained.experiment(fields={"attention.normalizer": "stick_breaking"})
