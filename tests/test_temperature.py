"""Tempered softmax: what n is, what it multiplies, and its jitter."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained

from lengthgen_jax.attention import temperature
from lengthgen_jax.attention.temperature import TEMPERATURES, TemperatureConfig
from lengthgen_jax.evaluation import decode
from lengthgen_jax.rng import Noise
from lengthgen_jax.tasks.packing import KINDS

SORTS = "5 3 4 3", "2 1"


def tempered(kind, family, task="sort", fields=()):
  fields = {"temperature.kind": kind, "positions.kind": "none"} | dict(fields)
  return untrained.experiment(task, family, fields)


@functools.cache
def sorts(family, longest=6):
  """Prompts of four and of two items, padded."""
  built = tempered("none", family)
  return untrained.typed(built, *SORTS, longest=longest)


@pytest.mark.parametrize("family", KINDS)
@pytest.mark.parametrize("kind", TEMPERATURES)
def test_temperatures_have_the_parameters_they_learn(kind, family):
  built, rule = tempered(kind, family), TEMPERATURES[kind]
  params = jax.eval_shape(lambda: built.init(0))
  found = {}
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    found.setdefault(path[-1].key, set()).add(leaf.shape)
  shape = (2,) if rule.per_head else ()
  learned = bool(rule.size) and rule.learned
  assert found.get("temperature") == ({shape} if learned else None)
  assert found.get("temperature_offset") == ({shape} if rule.offset else None)


@pytest.mark.parametrize("kind", TEMPERATURES)
def test_temperatures_are_what_they_say(kind):
  n, a, b = 7.0, 0.5, 1.25
  expected = {
    "none": None,
    "log_items": 0.5 * np.log(8),
    "log_visible": 0.5 * np.log(8),
    "one_plus_log": 1 + 0.5 * np.log(8),
    "scalable": 0.5 * np.log(7) + 1.25,
    "fixed": 0.5 * np.log(8),
  }[kind]
  config = TemperatureConfig(kind)
  sizes = temperature.sizes(config, np.array([[n]]), np.array([[n]]))
  tau = temperature.tau(config, sizes, a, b)
  if expected is None:
    assert tau is None
  else:
    np.testing.assert_allclose(tau, np.full((1, 1, 1, 1), expected), rtol=1e-6)


COUNTED = {"items": "log_items", "visible": "log_visible"}


@pytest.mark.parametrize("size", COUNTED)
def test_n_counts_items_or_what_a_row_sees_and_never_padding(size):
  """A decoder with a source of its own counts what each site sees."""
  built = tempered(COUNTED[size], "decoder_only")
  batch = sorts("decoder_only")
  (n,) = built.sites({}, batch).sizes.values()
  seen = np.arange(1, 13)[None]
  assert np.array_equal(n, [[4], [2]] if size == "items" else seen)
  built = tempered(COUNTED[size], "encoder_decoder")
  batch = sorts("encoder_decoder")
  n = built.sites({}, batch).sizes
  assert np.array_equal(n["self"], np.arange(1, 7)[None])
  assert np.array_equal(n["cross"], [[4], [2]])
  assert np.array_equal(n["encoder"], [[4], [2]])
  for family in KINDS:
    built = tempered(COUNTED[size], family)
    short, long = (
      built.sites({}, sorts(family, longest)).sizes for longest in (6, 9)
    )
    for site, n in short.items():
      assert np.array_equal(long[site][:, : n.shape[1]], n)


@pytest.mark.parametrize("family", KINDS)
def test_a_decoded_row_has_the_n_of_its_place(family):
  built, batch = tempered("log_visible", family), sorts(family)
  whole = built.sites({}, batch).sizes
  for row in (0, 3):
    part = decode.select_rows(batch, row, 1)
    n = built.sites({}, part, decoding=True).sizes
    assert np.array_equal(n["self"], whole["self"][:, row : row + 1])


@functools.partial(jax.jit, static_argnums=0)
def self_attention(built, params, batch, key=None):
  """Scores and weights of the first layer."""
  noise = None if key is None else Noise(key, jnp.arange(len(batch.inputs)))
  _, acts = built.apply(params, {}, batch, built.task.name, noise)
  return acts["decoder"]["blocks"][0]["self"]


def taught(params, a, b):
  """Parameters of a model with a temperature."""
  attention = {"temperature": a, "temperature_offset": b}
  block = params["decoder_0"]
  own = block["self_attention"] | attention
  return params | {"decoder_0": block | {"self_attention": own}}


@pytest.mark.parametrize("kind", [k for k in TEMPERATURES if k != "none"])
def test_temperature_sharpens_the_scores_and_not_the_bias(kind):
  """In bfloat16 too, where it multiplies float32 scores."""
  fields = {"model.dtype": "bfloat16", "positions.kind": "alibi"}
  fields |= {"temperature.initial": 0.7}
  plain, hot = (
    tempered(name, "decoder_only", fields=fields) for name in ("none", kind)
  )
  params, batch = untrained.params(plain), sorts("decoder_only")
  per_head = TEMPERATURES[kind].per_head
  a = jnp.array([0.7, 1.3]) if per_head else jnp.float32(0.7)
  b = jnp.array([0.1, 0.4])
  cold = self_attention(plain, params, batch)
  found = self_attention(hot, taught(params, a, b), batch)
  n = np.array([[4], [2]])
  if TEMPERATURES[kind].size == "visible":
    n = np.arange(1, 13)[None]
  rule = TEMPERATURES[kind].value
  tau = np.moveaxis(rule(n[..., None], a, b), -1, 1)[..., None]
  scores = tau * np.asarray(cold["scores"])
  np.testing.assert_allclose(found["scores"], scores, rtol=1e-5, atol=1e-6)
  distance = np.abs(np.arange(12) - np.arange(12)[:, None])
  bias = -np.array([2.0**-4, 2.0**-8])[:, None, None] * distance
  bias = np.where(np.tri(12, dtype=bool), bias, -np.inf)
  wanted = jax.nn.softmax(scores + bias, axis=-1)
  np.testing.assert_allclose(found["weights"], wanted, atol=1e-5)


# Jitter.


def test_n_is_stretched_and_in_training_jittered():
  """By s in tests; by 1...s² in training, each example by its own factor."""
  fields = {"temperature.initial": 0.7, "temperature.kind": "fixed"}
  fields |= {"model.dropout_rate": 0.0}
  plain = tempered("fixed", "decoder_only", fields=fields)
  wide = tempered(
    "fixed", "decoder_only", fields=fields | {"temperature.stretch": 10.0}
  )
  params, key = untrained.params(plain), jax.random.key(1)
  batch = untrained.typed(plain, *["5 3 4 3"] * 200)
  scores = lambda built, *key: np.asarray(
    self_attention(built, params, batch, *key)["scores"]
  )
  small = scores(plain)
  np.testing.assert_array_equal(small, scores(plain, key))
  tau = np.log(4 * 10 + 1) / np.log(4 + 1)
  np.testing.assert_allclose(scores(wide), tau * small, rtol=1e-4, atol=1e-6)
  told = np.abs(small) > 1e-2
  ratio = np.where(told, scores(wide, key) / np.where(told, small, 1), np.nan)
  low, high = np.nanmin(ratio, (1, 2, 3)), np.nanmax(ratio, (1, 2, 3))
  np.testing.assert_allclose(low, high, rtol=1e-3)
  factor = (np.exp(low * np.log(5)) - 1) / 4  # back from log(n+1)
  assert 0.99 < factor.min() < 1.3 and 75 < factor.max() < 101
  assert 0.35 < np.mean(factor < 10) < 0.65


def test_jitter_reaches_every_site_and_is_another_for_every_key():
  config = TemperatureConfig("log_items", stretch=10.0)
  sizes = {
    "self": jnp.arange(1.0, 7.0)[None],
    "cross": jnp.array([[4.0]]),
    "encoder": None,
  }
  ratios = []
  for seed in range(2):
    noise = Noise(jax.random.key(seed), jnp.arange(8))
    found = temperature.jittered(config, sizes, noise)
    assert found["encoder"] is None
    ratio = found["self"] / sizes["self"]
    assert ratio.shape == (8, 6) and 0.1 <= ratio.min() < 1 < ratio.max() <= 10
    np.testing.assert_allclose(ratio.min(axis=1), ratio.max(axis=1), rtol=1e-6)
    np.testing.assert_allclose(found["cross"][:, 0], 4 * ratio[:, 0], rtol=1e-6)
    ratios.append(ratio[:, 0])
  assert np.abs(ratios[0] - ratios[1]).min() > 1e-3


NOISES = {
  "jitter": {"temperature.stretch": 10.0},
  "dropout": {"model.dropout_rate": 0.3},
  "places": {"positions.kind": "randomized"},
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("family", KINDS)
def test_a_key_is_one_noise_and_another_key_another(family, noise):
  """Of each kind of noise by itself, and none in tests."""
  quiet = {"temperature.kind": "log_items", "model.dropout_rate": 0.0}
  built = tempered("log_items", family, fields=quiet | NOISES[noise])
  params, batch = untrained.params(built), sorts(family)
  numbers = jnp.arange(len(batch.inputs))
  loss = jax.jit(
    lambda key: built.loss_sum(params, {}, batch, "sort", Noise(key, numbers))
  )
  values = [float(loss(jax.random.key(i))) for i in (0, 1, 0)]
  assert values[0] == values[2] != values[1]
