"""Tempered softmax: what n is, what it multiplies, and its jitter."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained

from lengthgen_jax import sections
from lengthgen_jax.attention import temperature
from lengthgen_jax.attention.temperature import TEMPERATURES
from lengthgen_jax.rng import Noise
from lengthgen_jax.tasks.packing import KINDS

SORTS = "5 3 4 3", "2 1"


def tempered(kind, family, fields=()):
  fields = {"temperature.kind": kind, "positions.kind": "none"} | dict(fields)
  return untrained.experiment("sort", family, fields)


@functools.cache
def sorts(family, longest=6):
  """Prompts of four and of two items, padded."""
  return untrained.typed(tempered("none", family), *SORTS, longest=longest)


TAUS = {  # at n = 7, a = 0.5, b = 1.25
  "log_items": 0.5 * np.log(8),
  "log_visible": 0.5 * np.log(8),
  "one_plus_log": 1 + 0.5 * np.log(8),
  "scalable": 0.5 * np.log(7) + 1.25,
  "fixed": 0.5 * np.log(8),
  "asentmax": 0.5 + np.log1p(np.e) * np.log(8) ** (2 * np.tanh(-0.3)),
}


@pytest.mark.parametrize("kind", TAUS)
def test_tau_is_its_formula(kind):
  b = np.array([[[[1.0]]], [[[-0.3]]]]) if kind == "asentmax" else 1.25
  section = sections.Temperature(kind)
  tau = temperature.tau(section, np.array([[7.0]]), 0.5, b)
  np.testing.assert_allclose(tau, [[[[TAUS[kind]]]]], rtol=1e-6)


@pytest.mark.parametrize("kind", ("log_items", "log_visible"))
def test_n_counts_items_or_what_a_row_sees_and_never_padding(kind):
  """A decoder with a source of its own counts what each site sees."""
  sizes = {}
  for family, longest in itertools.product(KINDS, (6, 9)):
    sites = tempered(kind, family).site_inputs({}, sorts(family, longest))
    sizes[family, longest] = sites.counts
  items = [[4], [2]]
  n = sizes["decoder_only", 6]["self"]
  seen = [np.arange(1, 13)]
  assert np.array_equal(n, items if kind == "log_items" else seen)
  n = sizes["encoder_decoder", 6]
  assert np.array_equal(n["self"], [np.arange(1, 7)])
  assert np.array_equal(n["cross"], items)
  assert np.array_equal(n["encoder"], items)
  for family in KINDS:
    for site, n in sizes[family, 6].items():
      assert np.array_equal(sizes[family, 9][site][:, : n.shape[1]], n)


@functools.partial(jax.jit, static_argnums=0)
def self_attention(experiment, params, batch, key=None):
  """Scores and weights of the first layer."""
  noise = None if key is None else Noise(key, jnp.arange(len(batch.inputs)))
  _, acts = experiment.apply(params, {}, batch, experiment.task.name, noise)
  return acts["decoder_0"]["self_attention"]


def with_temperature(params, a, b):
  """Parameters of a model with a temperature; what is computed from the hidden
  state has `b` as its constant part, and no other."""
  block = params["decoder_0"]
  attention = block["self_attention"]
  projection = {"kernel": jnp.zeros((16, 2, 2)), "bias": jnp.stack([b, -b])}
  attention |= {"temperature": a, "temperature_offset": b}
  attention |= {"temperature_projection": projection}
  return params | {"decoder_0": block | {"self_attention": attention}}


# Of items; of what a row sees, with an offset by head; with projections.
@pytest.mark.parametrize("kind", ("log_items", "scalable", "asentmax"))
def test_temperature_sharpens_the_scores_and_not_the_bias(kind):
  """In bfloat16 too, where it multiplies float32 scores."""
  fields = {"model.dtype": "bfloat16", "positions.kind": "alibi"}
  fields |= {"temperature.initial": 0.7}
  plain = tempered("none", "decoder_only", fields)
  hot = tempered(kind, "decoder_only", fields)
  params, batch = untrained.params(plain), sorts("decoder_only")
  form = TEMPERATURES[kind]
  a = jnp.array([0.7, 1.3]) if form.per_head else jnp.float32(0.7)
  b = jnp.array([0.1, 0.4])
  scores = np.asarray(self_attention(plain, params, batch)["scores"])
  acts = self_attention(hot, with_temperature(params, a, b), batch)
  n = np.arange(1, 13)[None] if form.counts == "visible" else [[4], [2]]
  b = jnp.stack([b, -b]) if form.projections else b
  tau = form.value(np.array(n)[..., None], a, b)
  scores = np.moveaxis(tau, -1, 1)[..., None] * scores
  np.testing.assert_allclose(acts["scores"], scores, rtol=1e-5, atol=1e-6)
  distance = np.abs(np.arange(12) - np.arange(12)[:, None])
  bias = -np.array([2.0**-4, 2.0**-8])[:, None, None] * distance
  bias = np.where(np.tri(12, dtype=bool), bias, -np.inf)
  weights = jax.nn.softmax(scores + bias, axis=-1)
  np.testing.assert_allclose(acts["weights"], weights, atol=1e-5)


# Jitter.


def test_n_is_stretched_and_in_training_jittered():
  """By s in tests; by 1...s² in training, each example by its own factor."""
  fields = {"temperature.initial": 0.7, "model.dropout_rate": 0.0}
  plain = tempered("fixed", "decoder_only", fields)
  stretch = {"temperature.stretch": 10.0}
  wide = tempered("fixed", "decoder_only", fields | stretch)
  params, key = untrained.params(plain), jax.random.key(1)
  batch = untrained.typed(plain, *["5 3 4 3"] * 200)
  scores = lambda experiment, *key: np.asarray(
    self_attention(experiment, params, batch, *key)["scores"]
  )
  small = scores(plain)
  np.testing.assert_array_equal(small, scores(plain, key))
  tau = np.log(4 * 10 + 1) / np.log(4 + 1)
  np.testing.assert_allclose(scores(wide), tau * small, rtol=1e-4, atol=1e-6)
  large = np.abs(small) > 1e-2
  ratio = np.where(large, scores(wide, key) / np.where(large, small, 1), np.nan)
  low, high = np.nanmin(ratio, (1, 2, 3)), np.nanmax(ratio, (1, 2, 3))
  np.testing.assert_allclose(low, high, rtol=1e-3)
  factor = (np.exp(low * np.log(5)) - 1) / 4  # back from log(n+1)
  assert 0.99 < factor.min() < 1.3 and 75 < factor.max() < 101
  assert 0.35 < np.mean(factor < 10) < 0.65
