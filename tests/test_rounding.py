"""Rounding bounds hold for every order of evaluation and are not vacuous."""

import dataclasses
import fractions
import functools
import types

import elementary_functions
import jax
import jax.numpy as jnp
import local_models
import numpy as np
import pytest
from flax import linen as nn

from lengthgen_jax.attention.normalizers import masked_softmax
from lengthgen_jax.attention.positions.encoding import sinusoid
from lengthgen_jax.certify import certificate, rounding, survey
from lengthgen_jax.certify.logits import LayerwiseLogits
from lengthgen_jax.certify.rounding import InputBounds
from lengthgen_jax.errors import UsageError
from lengthgen_jax.models.layers import normalization

ONE_LAYER = (("model.num_decoder_layers", 1),)
MODEL_VARIANTS = {
  "pre": {},
  "encoder, post, gelu": {
    "encoder": 1,
    "fields": (
      *ONE_LAYER,
      *(("model.norm", "post"), ("model.activation", "gelu")),
    ),
  },
  "packed, block_end, rms": {
    "kind": "decoder_only",
    "fields": (
      *ONE_LAYER,
      *(("model.norm", "block_end"), ("model.norm_kind", "rms")),
    ),
  },
  "none, scaled bias, cyclic": {
    "fields": (
      *ONE_LAYER,
      *(("model.norm", "none"), ("bias.learned_scale", True)),
      *local_models.CYCLIC.items(),
    )
  },
}


@functools.cache
def untrained_case(variant: str) -> local_models.Case:
  experiment, params = local_models.model(
    "successor", **MODEL_VARIANTS[variant]
  )
  scaffold = local_models.some_lines(experiment, seed=1)
  # untrained.params draws matrices with deviation 0.3; half of that keeps
  # errors from growing with every layer.
  shrink = lambda x: x if x.ndim == 1 else 0.5 * x
  return local_models.Case(experiment, jax.tree.map(shrink, params), scaffold)


def in_float64(experiment, params):
  """Returns (experiment, parameters) of the same model in float64, for use
  under jax.enable_x64."""
  config = dataclasses.replace(experiment.model.config, dtype="float64")
  to_float64 = lambda x: jnp.asarray(np.asarray(x), jnp.float64)
  model = experiment.model.clone(config=config)
  return dataclasses.replace(experiment, model=model), jax.tree.map(
    to_float64, params
  )


@pytest.mark.parametrize("variant", MODEL_VARIANTS)
def test_float32_margins_are_off_by_less_than_their_bounds(variant):
  case = untrained_case(variant)
  rows = case.rows(case.largest)
  first_and_last_row = [min(rows), max(rows)]
  items, batch = case.inputs(case.largest)
  dense = case.apply(case.params, case.scaffold, batch)
  with jax.enable_x64(True):
    experiment, params = in_float64(case.experiment, case.params)
    head = experiment.task.name
    exact = experiment.apply(params, case.scaffold, batch, head)[0]
    assert exact.dtype == np.float64
    exact = np.asarray(exact)
  gaps, bounds = [], []
  for field, row in (rows[index] for index in first_and_last_row):
    contexts = case.survey.contexts_of(field, row, items, batch)
    logits, errors = case.layerwise(field, contexts)
    answers = field.right_tokens(contexts)[:, None]
    below_answer = lambda x, answers=answers: (
      np.take_along_axis(x, answers, 1) - x
    )
    for computed in (logits, np.asarray(dense[:, row.index])):
      difference = below_answer(computed.astype(np.float64))
      gap = np.abs(difference - below_answer(exact[:, row.index]))
      assert (gap <= errors).all()
      gaps.append(gap.max())
      bounds.append(errors.min(where=gap > 0, initial=np.inf))
  # Bounds assume the worst order of sums and the worst directions of errors.
  # They are not vacuous: the smallest is below 3e4 times the largest gap.
  assert max(gaps) > 0 and min(bounds) < 3e4 * max(gaps)


@pytest.mark.parametrize("variant", ["pre", "none, scaled bias, cyclic"])
def test_bounds_computed_in_float64_are_smaller_and_hold_for_float32(variant):
  case = untrained_case(variant)
  field, row = next(iter(case.rows(case.largest).values()))
  items, batch = case.inputs(case.largest)
  contexts = case.survey.contexts_of(field, row, items, batch)
  answers, margins, bounds = field.right_tokens(contexts), [], []
  for evaluate in (case.layerwise, case.layerwise.precise):
    logits, errors = evaluate(field, contexts)
    margins.append(certificate.margins(logits, answers))
    bounds.append(certificate.bounds(logits, answers, errors))
  assert logits.dtype == np.float64
  with jax.enable_x64(True):
    experiment, params = in_float64(case.experiment, case.params)
    head = experiment.task.name
    exact = experiment.apply(params, case.scaffold, batch, head)[0]
    exact = np.asarray(exact)[:, row.index]
    assert sinusoid(np.arange(3), 4).dtype == np.float64
  exact = certificate.margins(exact, answers)
  assert np.abs(margins[1] - exact).max() < 1e-12
  assert (np.abs(margins[0] - exact) <= bounds[1]).all()
  assert (bounds[1] < 0.6 * bounds[0]).all()


@pytest.mark.parametrize("name", elementary_functions.TRIALS)
def test_exp_rsqrt_and_reciprocal_are_as_accurate_as_assumed(name):
  error, count = elementary_functions.largest_error(name, stride=9973)
  assert count > 1000
  # Correct rounding alone is off by almost half a unit, so that an error below
  # a quarter would mean that nothing was measured.
  assert 0.25 < error <= elementary_functions.TRIALS[name].ulps


# The functions of single layers, against more exact arithmetic.


def to_fractions(x) -> np.ndarray:
  """Returns the same numbers as fractions."""
  return np.vectorize(fractions.Fraction, otypes=[object])(
    np.asarray(x, np.float64)
  )


def distance(computed, exact) -> float:
  """Returns the 2-norm of the difference."""
  return float(np.sum((to_fractions(computed) - exact) ** 2)) ** 0.5


def sums_in_four_orders(products: np.ndarray) -> list[np.ndarray]:
  """Returns sums over the first axis in float32: forward, backward, from the
  largest magnitude to the smallest, and in pairs."""

  def sequential_sum(terms):
    total = np.zeros_like(terms[0])
    for term in terms:
      total = (total + term).astype(np.float32)
    return total

  by_size = np.take_along_axis(
    products, np.argsort(-np.abs(products), axis=0), axis=0
  )
  pairs = products.astype(np.float32)
  while len(pairs) > 1:
    pairs = np.concatenate([pairs, np.zeros_like(pairs[: len(pairs) % 2])])
    pairs = pairs[::2] + pairs[1::2]
  orders = products, products[::-1], by_size
  return [*map(sequential_sum, orders), pairs[0]]


def test_what_might_overflow_or_vanish_has_no_bound():
  case = untrained_case("pre")
  field, row = next(iter(case.rows(case.largest).values()))
  contexts = case.survey.contexts_of(field, row, *case.inputs(case.largest))
  assert np.isfinite(case.layerwise(field, contexts)[1]).all()
  params = jax.tree.map(np.asarray, case.params)
  embedding = params["token_embedder"]["embedding"].copy()
  embedding[-1, -1] = rounding.LARGEST
  params["token_embedder"] = {"embedding": embedding}
  layerwise = LayerwiseLogits(
    case.experiment, params, case.layerwise.transducer
  )
  assert not np.isfinite(layerwise(field, contexts)[1]).any()
  gain = rounding.dense_gain({"kernel": np.eye(2)}, norm=None, heads=False)
  large, zero = jnp.float32(rounding.LARGEST), jnp.zeros(())
  assert np.isinf(rounding.dense(gain, InputBounds(zero, zero, large)))
  assert np.isfinite(rounding.dense(gain, InputBounds(zero, zero, large / 2)))


@pytest.mark.parametrize(
  "kind", ("random", "cancelling", "wide_range", "equal_terms")
)
def test_dense_layers_summed_in_any_order_are_within_their_bound(kind):
  rng, n = np.random.default_rng(0), 64
  x, kernel = rng.normal(size=n), rng.normal(size=(n, 8))
  if kind == "cancelling":
    x[n // 2 :], kernel[n // 2 :] = x[: n // 2], -kernel[: n // 2]
  if kind == "wide_range":
    x = 2.0 ** rng.integers(-12, 12, n) * x
  if kind == "equal_terms":
    # Every product is rounded down, and their sums are exact.
    x, kernel = np.full(n, 1 + 2.0**-12), np.full((n, 8), 1 + 2.0**-12)
  x, kernel = np.float32(x), np.float32(kernel)
  bias = np.float32(rng.normal(size=8))
  gain = rounding.dense_gain(
    {"kernel": kernel, "bias": bias}, norm=None, heads=False
  )
  exact = to_fractions(x) @ to_fractions(kernel) + to_fractions(bias)
  zero = jnp.zeros(())
  inputs = InputBounds(
    error_before_scale=zero,
    error_after_scale=zero,
    size=rounding.length(jnp.asarray(x)),
  )
  bound = float(rounding.dense(gain, inputs))
  results = [total + bias for total in sums_in_four_orders(x[:, None] * kernel)]
  errors = [distance(result, exact) for result in results]
  assert max(errors) <= bound < 1e3 * max(errors)
  # Errors of the inputs, along the direction that grows most.
  step = np.float32(1e-3 * np.linalg.svd(kernel)[0][:, 0])
  perturbed = exact + to_fractions(step) @ to_fractions(kernel)
  error = jnp.asarray(np.linalg.norm(step) * (1 + 1e-6))
  perturbed_bound = rounding.dense(
    gain, inputs._replace(error_after_scale=error)
  )
  assert distance(results[0], perturbed) <= float(perturbed_bound)
  if kind == "random":
    assert float(perturbed_bound) < 1.1 * distance(results[0], perturbed)


@pytest.mark.parametrize("kind", ("layer", "rms"))
@pytest.mark.parametrize("mean", (0.0, 3.0))
def test_normalization_is_within_its_bound(kind, mean):
  model_config = untrained_case("pre").experiment.model.config
  config = dataclasses.replace(model_config, norm_kind=kind)
  rng = np.random.default_rng(0)
  x = np.float32(
    mean + rng.normal(size=(20, 32)) * rng.uniform(0.1, 9, (20, 1))
  )
  params = {"scale": np.float32(rng.uniform(0.5, 2, 32))}
  if kind == "layer":
    params["bias"] = np.float32(rng.normal(size=32))
  scale = rounding.norm_scale(params)

  def exact(x):
    x = np.asarray(x, np.longdouble)
    centered = x - x.mean(axis=1, keepdims=True) * (kind == "layer")
    root = np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-6)
    return centered / root * params["scale"] + params.get("bias", 0)

  apply = lambda x: normalization(config).apply({"params": params}, x)
  step = np.float32(rng.normal(size=x.shape))
  for size in (0.0, 1e-4):
    error = jnp.full(20, size)
    step_norm = np.linalg.norm(step, axis=1, keepdims=True)
    perturbed = x.astype(np.float64) + size * 0.999 * step / step_norm
    output_bound = rounding.normalized(config, scale, jnp.asarray(x), error)
    bound = np.asarray(
      scale.scale * output_bound.error_before_scale
      + output_bound.error_after_scale
    )
    for y in (apply(x), jax.jit(apply)(x)):
      gap = np.linalg.norm(np.asarray(y) - exact(perturbed), axis=1)
      assert (gap <= bound).all() and (bound < 1e3 * gap).all()
      assert (np.linalg.norm(y, axis=1) <= output_bound.size).all()


# `sizes` are the errors of the inputs of queries, and of keys and values.
@pytest.mark.parametrize("sizes", [(0, 0), (1e-3, 0), (0, 1e-3), (0.03, 0.03)])
def test_attention_is_within_its_bound(sizes):
  rng = np.random.default_rng(0)
  model_size, heads, head_dim, keys, batch = 16, 2, 4, 3, 40
  shape = model_size, heads, head_dim
  draw = lambda *shape: np.float32(rng.normal(size=shape))
  params = {
    name: {"kernel": 0.5 * draw(*shape), "bias": draw(heads, head_dim)}
    for name in ("query", "key", "value")
  }
  params["out"] = {"kernel": draw(heads, head_dim, model_size)}
  gain = rounding.attention_gain(params, norm=None, key_norm=None)
  bias = np.float32([[0, -1, -np.inf], [0.5, 0, -2]])

  def attend(x, memory):
    """Returns what attention from x [B, D] to memory [B, G, D] computes, in
    their precision."""
    project = lambda name, x: (
      jnp.einsum("...d,dhk->...hk", x, params[name]["kernel"])
      + params[name]["bias"]
    )
    query, key = project("query", x), project("key", memory)
    value = project("value", memory)
    scores = jnp.einsum("bhk,bghk->bhg", query * head_dim**-0.5, key)
    weights = masked_softmax(scores + bias)
    context = jnp.einsum("bhg,bghk->bhk", weights, value)
    out = jnp.einsum("bhk,hkd->bd", context, params["out"]["kernel"])
    heads_first = lambda x: x.swapaxes(1, 2)
    activations = {"scores": scores, "weights": weights}
    return out, query, heads_first(key), heads_first(value), activations

  x, memory = 2 * draw(batch, model_size), 2 * draw(batch, keys, model_size)
  out, query, key, value, activations = attend(x, memory)
  error = jnp.full(batch, sizes[0]), jnp.full((batch, keys), sizes[1])
  inputs = [
    InputBounds(
      error_before_scale=e,
      error_after_scale=jnp.zeros_like(e),
      size=rounding.length(a) + 2 * e,
    )
    for a, e in zip((x, memory), error, strict=True)
  ]
  bound = rounding.attention(
    gain, *inputs, query, key, value, jnp.asarray(bias), activations
  )
  largest = np.zeros(batch)
  with jax.enable_x64(True):
    for _ in range(20):
      steps = rng.normal(size=x.shape), rng.normal(size=memory.shape)
      perturbed = [
        a.astype(np.float64)
        + 0.999 * size * b / np.linalg.norm(b, axis=-1, keepdims=True)
        for a, b, size in zip((x, memory), steps, sizes, strict=True)
      ]
      gap = np.linalg.norm(np.asarray(attend(*perturbed)[0]) - out, axis=1)
      largest = np.maximum(largest, gap)
  assert (largest <= bound).all()
  assert (np.asarray(bound) < 1e3 * largest).mean() > 0.9


@pytest.mark.parametrize("activation", ("relu", "gelu"))
@pytest.mark.parametrize("size", (0.0, 1e-3))
def test_mlps_are_within_their_bound(activation, size):
  rng = np.random.default_rng(0)
  draw = lambda *shape: np.float32(rng.normal(size=shape))
  params = {
    "wi": {"kernel": draw(8, 16), "bias": draw(16)},
    "wo": {"kernel": draw(16, 8)},
  }
  gain = rounding.mlp_gain(params, norm=None)
  x = draw(40, 8)
  function = {"relu": nn.relu, "gelu": nn.gelu}[activation]

  def apply(x):
    hidden = x @ params["wi"]["kernel"] + params["wi"]["bias"]
    return hidden, function(hidden) @ params["wo"]["kernel"]

  hidden, out = apply(jnp.asarray(x))
  error = jnp.full(40, size)
  inputs = InputBounds(
    error_before_scale=error,
    error_after_scale=0 * error,
    size=rounding.length(x) + 2 * error,
  )
  bound = rounding.mlp(gain, inputs, hidden, activation, group=4)
  largest = np.zeros(40)
  with jax.enable_x64(True):
    for _ in range(20):
      step = rng.normal(size=x.shape)
      step = 0.999 * size * step / np.linalg.norm(step, axis=1, keepdims=True)
      gap = np.linalg.norm(apply(jnp.asarray(x + step))[1] - out, axis=1)
      largest = np.maximum(largest, gap)
  assert (largest <= bound).all() and (bound < 1e3 * largest).all()


def test_a_groups_slope_bounds_the_norm_for_random_slopes_of_relu():
  rng = np.random.default_rng(0)
  params = {
    "wi": {"kernel": np.float32(rng.normal(size=(8, 16)))},
    "wo": {"kernel": np.float32(rng.normal(size=(16, 8)))},
  }
  gain = rounding.mlp_gain(params, norm=None)
  hidden = jnp.asarray(rng.normal(size=(32, 16)), jnp.float32)
  error = jnp.full(32, 0.01)
  inputs = InputBounds(
    error_before_scale=error, error_after_scale=0 * error, size=1 + error
  )
  norm = lambda mask: np.linalg.norm(
    gain.scaled_wi_kernel * mask @ gain.wo_kernel, 2
  )
  rows = np.asarray(hidden)
  is_undecided = np.abs(rows) < 2 * 0.01 * gain.wi_column_norms
  masks = np.where(is_undecided, rng.uniform(size=rows.shape), rows > 0)
  norms = np.array([norm(mask) for mask in masks])
  slope_of = functools.partial(
    rounding.slope_of_groups, gain, inputs, 0 * error, hidden
  )
  slopes = {group: np.asarray(slope_of(group)) for group in (1, 4, 32)}
  for group, slope in slopes.items():
    largest = norms.reshape(-1, group).max(axis=1).repeat(group)
    assert (largest <= slope).all() and (slope <= gain.slope).all()
  assert slopes[1].mean() < 0.9 * slopes[32].mean()


def test_a_groups_slope_bounds_the_norm_where_its_terms_cancel_in_float32():
  wi = np.float32([[2**27, 1, -(2**27)]])  # in float32 the sum may be 0
  params = {
    "wi": {"kernel": wi},
    "wo": {"kernel": np.ones((3, 1), np.float32)},
  }
  gain = rounding.mlp_gain(params, norm=None)
  hidden, zero = jnp.ones((1, 3)), jnp.zeros(1)
  inputs = InputBounds(
    error_before_scale=zero, error_after_scale=zero, size=1 + zero
  )
  assert rounding.slope_of_groups(gain, inputs, zero, hidden, 1) >= 1


def test_bounds_of_spectral_norms_are_above_and_near_them():
  rng = np.random.default_rng(0)
  matrix = rng.normal(size=(5, 7, 9))
  exact = np.linalg.norm(matrix, 2, axis=(1, 2))
  for bound in (
    np.asarray(rounding.schatten_norm(jnp.asarray(matrix, jnp.float32))),
    np.array([rounding.spectral_norm(x) for x in matrix]),
  ):
    assert (exact <= bound).all() and (bound < 1.2 * exact).all()


# What depends on the bounds.


def test_unsure_contexts_are_computed_again_in_float64():
  contexts = np.arange(6, dtype=np.uint8)[:, None]
  field = types.SimpleNamespace(right_tokens=lambda x: x[:, 0].astype(int))
  logits = np.float32(5 * np.eye(6))
  errors = np.float32([1, 2, 2.5, 3, 9, np.nan])[:, None].repeat(6, 1)
  refined = []

  def finer(field, unsure):  # it is enough for context 2
    finer_errors = np.float32([2, 3, 9, np.nan])[:, None].repeat(6, 1)
    assert unsure[:, 0].tolist() == [2, 3, 4, 5]
    return logits[unsure[:, 0]], finer_errors

  def precise(field, unsure):
    refined.extend(unsure[:, 0].tolist())
    return logits[unsure[:, 0]], np.float32([2, 5, 5])[:, None].repeat(6, 1)

  def chunk_logits(field, chunks, count):
    for chunk in chunks:
      yield chunk, logits, errors

  layerwise = types.SimpleNamespace(
    chunk_size=6,
    group=1,
    chunk_logits=chunk_logits,
    finer=finer,
    precise=precise,
  )
  two_chunks = [contexts, contexts]
  chunks = types.SimpleNamespace(chunks=lambda size: two_chunks, count=12)
  group = survey.RowGroup(field, [], chunks)

  def tally_of(max_refined=4, **counts):
    tally = certificate.Tally(**counts)
    counted = certificate.count_cases(
      layerwise, group, tally, max_refined=max_refined
    )
    assert sum(counted) == 6  # not the second chunk, after an unsure context
    return tally

  # A bound is twice the error of a logit, so that a margin of 5 is sure if that
  # is below 2.5.
  tally = tally_of()
  assert refined == [3, 4, 5]
  assert (tally.unsure, tally.rounding, tally.share) == (2, 10.0, 2.0)
  refined.clear()
  tally = tally_of(wrong=1)  # no proof in any case
  assert not refined and tally.unsure == 4 and tally.share == np.inf
  assert tally_of(max_refined=3).unsure == 4 and not refined
  logits[1, 2] = 6  # of a context in the same chunk
  assert tally_of().wrong == 1 and not refined


@pytest.mark.parametrize(
  ("field", "value"),
  [("dtype", "bfloat16"), ("activation", "swish"), ("norm_kind", "batch")],
)
def test_arithmetic_without_a_lemma_is_refused(field, value):
  config = untrained_case("pre").experiment.model.config
  rounding.check_arithmetic(config)
  with pytest.raises(UsageError, match=f"model.{field}={value} .*lemmas for"):
    rounding.check_arithmetic(dataclasses.replace(config, **{field: value}))


@pytest.mark.parametrize(
  ("platform", "precision", "message"),
  [
    ("gpu", "high", "model.precision=high"),
    ("gpu", "highest", ""),
    ("tpu", "highest", "a tpu are not those of IEEE"),
  ],
)
def test_reduced_precision_matmuls_are_refused(
  platform, precision, message, monkeypatch
):
  monkeypatch.setattr(jax, "default_backend", lambda: platform)
  config = untrained_case("pre").experiment.model.config
  config = dataclasses.replace(config, precision=precision)
  if not message:
    return rounding.check_arithmetic(config)
  with pytest.raises(UsageError, match=message):
    rounding.check_arithmetic(config)
  return None
