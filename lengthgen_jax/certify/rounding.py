"""This module bounds the rounding of a model's float32 arithmetic.

A bound here holds for *every evaluation* of the model's formulas whose
operations are as accurate as those of IEEE float32, and for the exact one: sums
in any order, products fused with sums or not, on any device, by any program.

Model of arithmetic. Let u = 2^-24.

1. Sums, differences and products of two numbers are those of real numbers,
   times 1 + d with |d| <= u.
2. exp, rsqrt and the reciprocal are off by at most EXP_ULPS, RSQRT_ULPS and
   RECIPROCAL_ULPS units in the last place, one of which is at most 2u of the
   result. A quotient or a root that takes the place of one of these is as
   accurate. (tests/elementary_functions.py tries the program's own.)
3. Sines and cosines of a cyclic index are off by at most SINUSOID times the
   period; GELU, whose tanh is computed, by at most GELU_ULPS units of its
   argument.
4. Numbers below 2^-126 may be flushed to zero. TINY, which is added to every
   bound, is far above what that changes in sums of 2^12 terms of at most 2^30.

Float64 arithmetic is such an evaluation, too, with 2^-53 in place of u.
Products whose factors are rounded to TF32 or bfloat16 are none:
`check_arithmetic` refuses them.

Notation. x* is the exact value of a vector, x^ that of any evaluation, and |x|
its 2-norm. An *error* e of a vector is a number with |x^ - x*| <= e for every
evaluation. The value x that the program computed is an evaluation itself, so x^
is within s e of it, where s, the `spread`, is 2. If it was computed in float64,
s is 1 + 2^-20: every error here is u times what does not shrink when u grows,
so that x is less than 2^-28 e from x* (SINUSOID is 2^4 u, and sinusoids are
float64 then, too). The *size* |x| + s e bounds every |x^|.
gamma(n) = n u / (1 - n u) bounds the relative error of n operations in a row
(Higham, Accuracy and Stability of Numerical Algorithms, section 3.1); a sum of
n products is off by at most gamma(n) times the sum of their magnitudes, in any
order.

Lemmas, one for each function below:

- Dense layer (`dense`). y = xW + b has the error |W| e + gamma(n + 2) (||W|| r
  + |b|), where |W| is the spectral norm, ||W|| that of the matrix of
  magnitudes, and r the size of x. For each column w of W a sum of products is
  off by gamma(n) sum |x_i| |w_i|, and the vector of these sums is |x| times the
  matrix of magnitudes.
- Normalization (`normalized`). z -> z / sqrt(|z|^2 / n + eps) has the Jacobian
  (I - z z' / (n s^2)) / s with s the root, whose spectral norm is at most 1/s;
  s changes by at most e / sqrt(n) with z, and subtracting the mean is a
  projection. So exact normalization turns e into e / s, for the least s within
  the error. A mean is off by gamma(n) r / sqrt(n), which moves the vector by
  gamma(n) r. The variance, also as mean of squares minus square of the mean, is
  off by v = 3 gamma(n + 4) r^2 / n, as |mean| <= r / sqrt(n). With t = v / s^2
  <= 1/4, 1/sqrt(1 - t) <= 1 + t/2 (1 + t). The product with rsqrt is at most
  sqrt(n) long.
- Scores (`attention`). Softmax depends on differences of scores alone, so they
  are compared with that of an anchor, the key of the largest weight. q.(k - a)
  changes by dq.(k - a) + q.(dk - da); dq is dn W with the error dn of the
  normalized input, so |dq.(k - a)| <= |W (k - a)| |dn|, and likewise for keys.
  The rounding of products, of the sum with the bias, of the difference to the
  row's peak (any number will do: weights do not depend on it) and of exp is
  added. So exponents are off by m_k, and m = max m_k.
- Weights. log p^_k - log p*_k is m_k less a mean of the exponents' errors,
  which is at most m and, by Jensen, at most sum p (exp(m_j) - 1); and nu, the
  rounding of the total, its reciprocal and their product. Hence p^ <= p* exp(2m
  + nu) (`by_ratio`); and p* is within exp((s - 1)(2m + nu)) of what was
  computed. Also p^_k - p*_k is the integral of p_k ((1 - p_k) m_k - sum p_j
  m_j) along the way, where every weight, and every sum of weights, is within
  exp(2m) of p* and exp(2sm + (s - 1) nu) of the computed one (`by_slope`).
- Values. sum p^ v^ - sum p* v* = sum p^ (v^ - v*) + sum (p^ - p*) (v* - a) +
  (sum p^ - 1) a, with the anchor's exact value a. The last term is of nu. The
  second is at most 2 max |v* - a|, whatever the weights. The first goes through
  values and outputs as one matrix.
- Residual sum. The errors' sum, and u times the size of the sum.
- MLP (`mlp`). relu(y^) - relu(y*) = D (y^ - y*) with a diagonal D of 0...1,
  which is 1 or 0 where a hidden unit is further from zero than its error. For a
  group of examples D is M + S E, M and S known, |E| <= 1, so that |A D B| <= |A
  M B| + sqrt(|A S A'| |B' S B|) (`slope_of_groups`). GELU moves two numbers
  apart by GELU_SLOPE at most.
- Margin (`head_gains`). logit_i - logit_j is a product with w_i - w_j, whose
  error is |w_i - w_j| e, and the rounding of both logits. The error of the
  margin is that of the other token j with the largest one.

Bounds are computed in the precision of the values themselves. They are sums,
products, quotients and roots of numbers that are not negative, so that they are
off by a few hundred u of themselves; every lemma's result is multiplied by
SLACK, which is more.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check
from lengthgen_jax.models.layers import PRECISIONS, ModelConfig

U = 2.0**-24
EXP_ULPS = 4
RSQRT_ULPS = 4
RECIPROCAL_ULPS = 2
GELU_ULPS = 16
GELU_SLOPE = 1.13
SINUSOID = 2.0**-20
TINY = 2.0**-80
SLACK = 1 + 2.0**-10
EPSILON = 1e-6  # of both kinds of normalization
POWERS = 10  # squarings in spectral_norm


def gamma(n: int) -> float:
  """Returns the bound n u / (1 - n u) of n relative errors of at most u."""
  return n * U / (1 - n * U)


# What the weights of a model do to errors.


class Gain(NamedTuple):
  """How much a dense layer (or each head of one) changes errors and sizes.

  Attributes:
    scaled: the spectral norm of the kernel, its rows multiplied by the scale of
      the normalization that comes before.
    plain: the spectral norm of the kernel.
    magnitudes: the spectral norm of the kernel's magnitudes.
    offset: the 2-norm of the bias.
    rounding: gamma of the number of terms.
  """

  scaled: Any
  plain: Any
  magnitudes: Any
  offset: Any
  rounding: Any


class AttentionGain(NamedTuple):
  """How much an attention changes errors.

  Attributes:
    query, key, value: the Gain [H] of each head's projection.
    query_root, key_root: [H, K, K], square roots R of W'W for the scaled kernel
      W of each head, so that |W x| = |R x|.
    out: the Gain of the output projection.
    out_heads: [H], the spectral norm of each head's part of it.
    value_out: [H], the spectral norm of each head's scaled value kernel times
      that part.
    all_values: the spectral norm of all heads' scaled value kernel.
  """

  query: Gain
  key: Gain
  value: Gain
  query_root: Any
  key_root: Any
  out: Gain
  out_heads: Any
  value_out: Any
  all_values: Any


class MlpGain(NamedTuple):
  """How much an MLP changes errors.

  Attributes:
    wi, wo: the Gains of its layers.
    slope: a bound of |wi D wo| for all diagonal matrices D of 0...1.
    inputs: [D, F], the scaled kernel of `wi`; outputs: [F, D], the kernel of
      `wo`.
    input_lengths, output_lengths: [F], the 2-norms of their columns and rows.
  """

  wi: Gain
  wo: Gain
  slope: Any
  inputs: Any
  outputs: Any
  input_lengths: Any
  output_lengths: Any


class Scale(NamedTuple):
  """The largest scale of a normalization, and the 2-norm of its offset."""

  scale: Any
  offset: Any


def spectral_norm(matrix: np.ndarray) -> float:
  """Returns an upper bound of a matrix's spectral norm.

  It is at most 0.1 % above for 64 columns: |A|^(2m) = |(A'A)^m|, which is at
  most the Frobenius norm of that power, for m = 2^POWERS. The relative rounding
  of float64 is below 1e-9.
  """
  matrix = np.asarray(matrix, np.float64)
  if matrix.shape[0] < matrix.shape[1]:
    matrix = matrix.T
  power, log_norm = matrix.T @ matrix, 0.0
  for k in range(POWERS + 1):
    size = np.linalg.norm(power)
    if size == 0:
      return 0.0
    log_norm += np.log(size) / 2**k
    power = power / size
    power = power @ power
  return float(np.exp(log_norm / 2) * (1 + 1e-9))


def dense_gain(params: Mapping, norm: Mapping | None, heads: bool) -> Gain:
  """Returns the Gain of a dense layer.

  Args:
    params: its kernel [inputs, ..., outputs], and its bias.
    norm: the parameters of the normalization before it, or None.
    heads: whether the kernel is [inputs, H, K], for a gain [H] of each head.
  """
  kernel = np.asarray(params["kernel"], np.float64)
  bias = np.asarray(params.get("bias", 0.0), np.float64)
  if heads:
    parts = list(kernel.swapaxes(0, 1))
    offset = np.linalg.norm(np.broadcast_to(bias, kernel.shape[1:]), axis=1)
  else:
    parts = [kernel.reshape(-1, kernel.shape[-1])]
    offset = np.linalg.norm(bias)
  scale = 1.0 if norm is None else np.asarray(norm["scale"])[:, None]
  norms = [
    [spectral_norm(scale * part), spectral_norm(part)]
    + [spectral_norm(np.abs(part))]
    for part in parts
  ]
  scaled, plain, magnitudes = np.array(norms).T if heads else norms[0]
  return Gain(scaled, plain, magnitudes, offset, gamma(len(parts[0]) + 2))


def norm_scale(params: Mapping) -> Scale:
  """Returns the Scale of a normalization."""
  offset = np.linalg.norm(np.asarray(params.get("bias", 0.0), np.float64))
  return Scale(np.abs(np.asarray(params["scale"])).max(), offset)


def attention_gain(
  params: Mapping, norm: Mapping | None, key_norm: Mapping | None
) -> AttentionGain:
  """Returns the AttentionGain of an attention.

  Args:
    params: its parameters.
    norm: those of the normalization before queries, or None.
    key_norm: those of the normalization before keys and values, or None.
  """
  scaled = lambda name, norm: (
    (1.0 if norm is None else np.asarray(norm["scale"])[:, None, None])
    * np.asarray(params[name]["kernel"], np.float64)
  )  # [D, H, K]
  root = lambda kernel: np.stack(
    [np.linalg.qr(head, mode="r") for head in kernel.swapaxes(0, 1)]
  )
  value, out = scaled("value", key_norm), params["out"]["kernel"]
  out_heads = list(np.asarray(out, np.float64))  # [K, D] each
  pairs = zip(value.swapaxes(0, 1), out_heads, strict=True)
  return AttentionGain(
    query=dense_gain(params["query"], norm, True),
    key=dense_gain(params["key"], key_norm, True),
    value=dense_gain(params["value"], key_norm, True),
    query_root=root(scaled("query", norm)),
    key_root=root(scaled("key", key_norm)),
    out=dense_gain(params["out"], None, False),
    out_heads=np.array(list(map(spectral_norm, out_heads))),
    value_out=np.array([spectral_norm(v @ o) for v, o in pairs]),
    all_values=spectral_norm(value.reshape(len(value), -1)),
  )


def mlp_gain(params: Mapping, norm: Mapping | None) -> MlpGain:
  """Returns the MlpGain of an MLP after a normalization, or None."""
  scale = 1.0 if norm is None else np.asarray(norm["scale"])[:, None]
  wi = scale * np.asarray(params["wi"]["kernel"], np.float64)
  wo = np.asarray(params["wo"]["kernel"], np.float64)
  gains = (
    dense_gain(params["wi"], norm, False),
    dense_gain(params["wo"], None, False),
  )
  return MlpGain(
    *gains,
    (spectral_norm(wi @ wo) + gains[0].scaled * gains[1].plain) / 2,
    wi,
    wo,
    np.linalg.norm(wi, axis=0),
    np.linalg.norm(wo, axis=1),
  )


def block_gains(params: Mapping, memory_norm: Mapping | None) -> dict:
  """Returns what the layers of a block do, by the names of its parameters.

  `memory_norm` has the parameters of the normalization at the end of the
  encoder; None if there is none.
  """
  gains: dict[str, Any] = {}
  for name, layer in params.items():
    norm = params.get(f"pre_{name}_layer_norm")
    if name == "mlp":
      gains[name] = mlp_gain(layer, norm)
    elif name.endswith("attention"):
      key_norm = norm if name == "self_attention" else memory_norm
      gains[name] = attention_gain(layer, norm, key_norm)
    else:
      gains[name] = norm_scale(layer)
  return gains


def head_gains(params: Mapping, norm: Mapping | None) -> Gain:
  """Returns the Gain [V] of the margins of a head of logits.

  Entry i is the largest over j of what logit_i - logit_j does to errors.
  """
  kernel = np.asarray(params["kernel"], np.float64).T  # [V, D]
  bias = np.abs(np.asarray(params.get("bias", np.zeros(len(kernel)))))
  scale = 1.0 if norm is None else np.asarray(norm["scale"])
  largest = lambda rows: np.max(
    np.linalg.norm(rows[:, None] - rows, axis=-1), axis=1
  )
  sizes = np.linalg.norm(kernel, axis=1)
  return Gain(
    largest(scale * kernel),
    largest(kernel),
    sizes + sizes.max(),
    bias + bias.max(),
    gamma(kernel.shape[1] + 2),
  )


# Primitives.


class Inputs(NamedTuple):
  """What is known of the inputs of a dense layer.

  Attributes:
    scaled: the error before the scale of a normalization is applied.
    plain: the error that is added to that.
    size: the largest 2-norm of any evaluation.
  """

  scaled: jax.Array
  plain: jax.Array
  size: jax.Array


def length(x: jax.Array) -> jax.Array:
  """Returns the 2-norm over the last axis."""
  return jnp.sqrt((x * x).sum(axis=-1))


def spread(x: Array) -> float:
  """Returns how many errors any evaluation is at most from the one computed."""
  return 1 + 2.0**-20 if x.dtype == jnp.float64 else 2.0


def growth(exponent: jax.Array) -> jax.Array:
  """Returns at least exp(exponent) - 1, inf above 1."""
  return jnp.where(exponent <= 1, exponent * (1 + exponent), jnp.inf)


def once(error: Any) -> Any:
  """Returns errors unchanged, as values that XLA computes once.

  It would compute them again for each element of a larger array that they are
  broadcast to, which takes three times as long as all the rest.
  """
  return jax.lax.optimization_barrier(error)


def unnormalized(x: jax.Array, error: jax.Array) -> Inputs:
  """Returns what is known of values x [..., D] with an error [...]."""
  size = length(x) + spread(x) * error
  return once(Inputs(jnp.zeros_like(error), error, size))


def normalized(
  config: ModelConfig, norm: Scale, x: jax.Array, error: jax.Array
) -> Inputs:
  """Returns what is known after the normalization of x [..., D]."""
  n = x.shape[-1]
  if config.norm_kind == "layer":
    centered = x - x.mean(axis=-1, keepdims=True)
  else:
    centered = x
  size = length(x) + spread(x) * error
  variance_error = 3 * gamma(n + 4) * size**2 / n
  square = (centered * centered).mean(axis=-1) + EPSILON - variance_error
  root = jnp.sqrt(jnp.maximum(square, 0)) / SLACK
  root -= spread(x) * error * SLACK / n**0.5
  root = jnp.maximum(root, TINY)
  t = variance_error / root**2 + 2 * U
  of_root = jnp.where(t <= 0.25, t / 2 * (1 + t), jnp.inf)
  scaled = error / root + gamma(n + 4) * size / root
  scaled += (of_root + (2 * RSQRT_ULPS + 3) * U) * n**0.5
  size = norm.scale * (n**0.5 + 2 * scaled) + norm.offset
  plain = U * size
  size += 2 * plain
  return once(Inputs(scaled * SLACK, plain * SLACK, size * SLACK))


def dense(gain: Gain, inputs: Inputs) -> jax.Array:
  """Returns the error of a dense layer's outputs, [..., H] if its gain is of
  each head."""
  if np.ndim(gain.plain):
    inputs = Inputs(*(x[..., None] for x in inputs))
  error = gain.scaled * inputs.scaled + gain.plain * inputs.plain
  error += gain.rounding * (gain.magnitudes * inputs.size + gain.offset)
  return once(error * SLACK + TINY)


def residual(x: jax.Array, error: jax.Array) -> jax.Array:
  """Returns the error of a sum x, of whose terms the errors' sum is given."""
  return (error + U * (length(x) + spread(x) * error)) * SLACK + TINY


def at_most_one(weight: jax.Array, factor: jax.Array) -> jax.Array:
  """Returns weight · factor, 1 where that is more or no number, and SLACK."""
  product = weight * factor
  return jnp.where(product < 1, product, 1.0) * SLACK


def of_rest(gain: Gain, inputs: Inputs) -> jax.Array:
  """Returns the error [..., H] of projections without what `scaled` does."""
  return dense(gain, inputs._replace(scaled=jnp.zeros_like(inputs.scaled)))


def attention(
  gain: AttentionGain,
  inputs: Inputs,
  key_inputs: Inputs,
  query: jax.Array,
  key: jax.Array,
  value: jax.Array,
  bias: jax.Array,
  acts: Mapping,
) -> jax.Array:
  """Returns the error [B] of the output of an attention.

  Args:
    gain: of its projections.
    inputs: [B], of the queries.
    key_inputs: [B, G], of keys and values.
    query: [B, H, K], as projected.
    key, value: [B, H, G, K].
    bias: [H, G], as it is added to the scores.
    acts: "scores" and "weights" [B, H, G].
  """
  (num_keys, head_dim), near = key.shape[-2:], spread(key)
  heads_first = lambda x: x.swapaxes(-1, -2)  # [B, G, H] -> [B, H, G]
  is_open = bias > -jnp.inf
  weights = acts["weights"]
  # Everything is compared with the key of the largest weight, the anchor.
  anchor = weights.argmax(axis=-1)[..., None]
  of_anchor = lambda x: jnp.take_along_axis(x, anchor, axis=2)
  anchor_of = lambda x: jnp.take_along_axis(x, anchor[..., None], axis=2)
  key_step, value_step = key - anchor_of(key), value - anchor_of(value)
  key_length, value_length = once((length(key), length(value)))
  key_distance, value_distance = once((length(key_step), length(value_step)))

  # Scores, relative to that of the anchor.
  query_rest = of_rest(gain.query, inputs)[..., None]  # [B, H, 1]
  query_error = dense(gain.query, inputs)[..., None]
  query_length = length(query)[..., None]
  key_rest = heads_first(of_rest(gain.key, key_inputs))
  key_error = heads_first(dense(gain.key, key_inputs))
  by_root = lambda root, x: once(
    length(jnp.einsum("hij,bh...j->bh...i", root, x))
  )
  of_query = inputs.scaled[:, None, None] * by_root(gain.query_root, key_step)
  of_query += query_rest * key_distance
  of_query += query_error * (key_error + of_anchor(key_error))
  of_key = by_root(gain.key_root, query)[..., None]
  of_key = of_key * key_inputs.scaled[:, None] + key_rest * query_length
  of_key += near * query_error * key_error
  key_size = key_length + near * key_error
  of_key += gamma(head_dim + 6) * (query_length + near * query_error) * key_size
  scale = head_dim**-0.5
  finite_bias = jnp.where(is_open, bias, 0.0)
  logits = acts["scores"] + finite_bias
  of_key = scale * of_key + 2 * EXP_ULPS * U
  of_key += U * (jnp.abs(logits) + 2 * jnp.abs(finite_bias))
  of_key += U * (1 + jnp.abs(logits - of_anchor(logits)))
  of_logit = scale * of_query + of_key + of_anchor(of_key)
  of_logit = once(of_logit)
  is_other = is_open & (jnp.arange(num_keys) != anchor)
  of_logit = jnp.where(is_other, of_logit, 0.0) * SLACK
  largest = of_logit.max(axis=-1, keepdims=True)
  of_logit = jnp.where(is_other, of_logit + 8 * U * largest, 0.0)

  # Weights.
  of_total = gamma(num_keys + 2 + 2 * RECIPROCAL_ULPS)
  largest = of_logit.max(axis=-1, keepdims=True)
  mean = (weights * growth(of_logit)).sum(axis=-1, keepdims=True)
  of_computed = 1 + growth((near - 1) * (2 * largest + of_total))
  mean = mean * of_computed
  by_ratio = of_computed * growth(
    of_logit + jnp.minimum(mean, largest) + of_total
  )
  weighted = weights * of_logit
  by_slope = (1 + growth(near * (4 * largest + of_total))) * (
    (1 - weights) * of_logit + weighted.sum(axis=-1, keepdims=True) - weighted
  ) + 2 * of_total
  of_weight = once(at_most_one(weights, jnp.minimum(by_ratio, by_slope)))
  # Values.
  value_error = heads_first(dense(gain.value, key_inputs))
  step_length = value_distance + value_error + of_anchor(value_error)
  step_length = jnp.where(is_other, step_length, 0.0)
  of_choice = jnp.minimum(
    (jnp.where(is_other, of_weight, 0.0) * step_length).sum(axis=-1),
    2 * step_length.max(axis=-1),
  )
  most = at_most_one(weights, 1 + growth(near * (2 * largest + of_total)))
  most = once(jnp.where(is_open, most, 0.0))
  value_size = value_length + near * value_error
  of_choice += of_total * (of_anchor(value_size)[..., 0] * 2)
  of_choice += gamma(num_keys + 2) * (most * value_size).sum(axis=-1)
  value_rest = heads_first(of_rest(gain.value, key_inputs))
  of_choice += (most * value_rest).sum(axis=-1)
  of_choice = of_choice * SLACK + TINY  # [B, H]
  by_head = (gain.out_heads * of_choice).sum(axis=-1)
  error = jnp.minimum(by_head, gain.out.plain * length(of_choice))
  # What errors of the keys' states do through values and outputs together.
  by_head = (gain.value_out[:, None] * most).sum(axis=1)  # [B, G]
  by_all = gain.all_values * gain.out.plain * most.max(axis=1)
  error += (jnp.minimum(by_head, by_all) * key_inputs.scaled).sum(axis=-1)
  # The rounding of the output projection.
  context = (weights[..., None] * value).sum(axis=-2)
  context_error = of_choice + (most * value_error).sum(axis=-1)
  size = length(context.reshape(len(context), -1))
  size += near * length(context_error)
  none = jnp.zeros_like(size)
  return error * SLACK + dense(gain.out, Inputs(none, none, size))


def mlp(
  gain: MlpGain,
  inputs: Inputs,
  hidden: jax.Array,
  activation: str,
  *,
  group: int,
) -> jax.Array:
  """Returns the error [B] of the output of an MLP.

  Args:
    gain: of its layers.
    inputs: [B], of the first one.
    hidden: [B, F], the outputs of the first one.
    activation: "relu" or "gelu".
    group: how many examples share a bound of the MLP's slope.
  """
  error = dense(gain.wi, inputs)
  if activation == "gelu":
    size = length(hidden) + spread(hidden) * error
    error = GELU_SLOPE * error + GELU_ULPS * 2 * U * size
    return dense(gain.wo, Inputs(jnp.zeros_like(error), error, size))
  rest = of_rest(gain.wi, inputs)
  slope = slope_of_groups(gain, inputs, rest, hidden, group)
  size = length(jnp.maximum(hidden, 0)) + spread(hidden) * error
  error = slope * inputs.scaled * SLACK
  return error + dense(gain.wo, Inputs(jnp.zeros_like(rest), rest, size))


def slope_of_groups(
  gain: MlpGain,
  inputs: Inputs,
  rest: jax.Array,
  hidden: jax.Array,
  group: int,
) -> jax.Array:
  """Returns bounds [B] of |wi D wo| for all D that can be between two
  evaluations of the hidden units of any of `group` examples in a row.

  Args:
    gain: of the layers.
    inputs: [B], of the first one.
    rest: [B], the error of its outputs without what `scaled` does.
    hidden: [B, F], its outputs.
    group: how many examples share a bound, a divisor of B.
  """
  distance = inputs.scaled[:, None] * gain.input_lengths + rest[:, None]
  distance = spread(hidden) * SLACK * distance
  by_group = lambda x: x.reshape(len(x) // group, group, -1)
  always = by_group(hidden > distance).all(axis=1).astype(hidden.dtype)
  never = by_group(hidden < -distance).all(axis=1).astype(hidden.dtype)
  middle, radius = (1 + always - never) / 2, (1 - always - never) / 2
  product = lambda a, d, b: jnp.einsum("df,gf,fe->gde", a, d, b)
  norm_of_sides = schatten_norm(
    product(gain.inputs, radius, gain.inputs.T)
  ) * schatten_norm(product(gain.outputs.T, radius, gain.outputs))
  slope = schatten_norm(product(gain.inputs, middle, gain.outputs))
  slope = slope + jnp.sqrt(norm_of_sides)
  return jnp.repeat(jnp.minimum(slope, gain.slope), group)


def schatten_norm(matrix: jax.Array) -> jax.Array:
  """Returns bounds [...] of the spectral norms of matrices [..., D, E].

  They are the 16-norms of the singular values. The products of which such
  matrices are made and these here round by at most a thousandth of their norms.
  """
  power = matrix @ matrix.swapaxes(-1, -2)
  size = jnp.maximum(jnp.abs(power).max((-2, -1), keepdims=True), TINY)
  power = power / size  # so that nothing overflows
  power = power @ power
  power = power @ power
  norm = jnp.sqrt((power * power).sum((-2, -1)))  # |A|^8 at most
  norm = jnp.sqrt(jnp.sqrt(norm)) * size[..., 0, 0]
  return jnp.sqrt(norm) * SLACK**4


# Layers of the model.


def model_gains(params: Mapping, head: str) -> dict:
  """Returns the gains of a model, by the names of its parameters.

  Args:
    params: the parameters of one seed.
    head: the name of the task whose margins are bounded.
  """
  gains: dict[str, Any] = {}
  for name, layer in params.items():
    if name.startswith(("encoder_", "decoder_")):
      is_norm = name.endswith("norm")
      memory_norm = params.get("encoder_norm")
      gains[name] = (
        norm_scale(layer) if is_norm else block_gains(layer, memory_norm)
      )
  name = f"logits_dense_{head}"
  gains[name] = head_gains(params[name], params.get("decoder_norm"))
  return jax.tree.map(lambda x: np.float32(np.multiply(x, 1 + 1e-6)), gains)


def embeddings(config: ModelConfig, x: jax.Array) -> jax.Array:
  """Returns the errors [...] of embeddings [..., D] with their positions and
  the vectors of their segments."""
  positions, error = config.positions, jnp.zeros_like(x[..., 0])
  root = x.shape[-1] ** 0.5
  if positions.segments:
    # The sum with the segment's vector is x without its position, which is a
    # sinusoid or nothing.
    error += U * (length(x) + root)
  if positions.kind != "none":
    error += U * length(x)
  if positions.kind == "sinusoidal":
    error += SINUSOID * positions.cyclic_period * root
  return error * SLACK


def layer_inputs(
  config: ModelConfig, norm: Scale | None, x: jax.Array, error: jax.Array
) -> Inputs:
  """Returns what is known of x after a normalization, if there is one."""
  if norm is None:
    return unnormalized(x, error)
  return normalized(config, norm, x, error)


def block(
  config: ModelConfig,
  params: Mapping,
  gains: Mapping,
  x: jax.Array,
  error: jax.Array,
  keys: Mapping,
  biases: Mapping,
  acts: Mapping,
  sublayers: Mapping,
  *,
  group: int,
) -> jax.Array:
  """Returns the error [B] of one token's state after a block.

  Args:
    config: the hyper-parameters of the model.
    params: the parameters of the block.
    gains: the block's gains.
    x: [B, D], the states before the block.
    error: [B], their errors.
    keys: by site, keys and values [B, H, G, K] and their Inputs [B, G].
    biases: by site, [H, G].
    acts: the block's activations.
    sublayers: the outputs of its layers, as flax captures them.
    group: how many examples share a bound of the MLP's slope.
  """

  def inputs(name: str, x: jax.Array, error: jax.Array) -> Inputs:
    norm = gains.get(f"pre_{name}_layer_norm")
    return layer_inputs(config, norm, x, error)

  def add(name: str, x, update, error):
    x = x + update
    error = residual(x, error)
    name = f"post_{name}_layer_norm"
    if name in gains:
      after = normalized(config, gains[name], x, error)
      x = sublayers[name]["__call__"][0][:, 0]
      error = gains[name].scale * after.scaled + after.plain
    return x, error

  for site, (key, value, key_inputs) in keys.items():
    name, bias = f"{site}_attention", biases[site]
    layer = sublayers[name]
    if config.learned_bias_scale:
      scale = params[name]["bias_scale"]
      bias = jnp.where(bias > -jnp.inf, scale * bias, -jnp.inf)
    output_error = attention(
      gains[name],
      inputs(name, x, error),
      key_inputs,
      layer["query"]["__call__"][0][:, 0],
      key,
      value,
      bias,
      {key: a[:, :, 0] for key, a in acts[site].items()},
    )
    update = layer["out"]["__call__"][0][:, 0]
    x, error = add(name, x, update, error + output_error)
  layer = sublayers["mlp"]
  output_error = mlp(
    gains["mlp"],
    inputs("mlp", x, error),
    layer["wi"]["__call__"][0][:, 0],
    config.activation,
    group=group,
  )
  update = layer["wo"]["__call__"][0][:, 0]
  x, error = add("mlp", x, update, error + output_error)
  if "block_end_layer_norm" in gains:
    norm = gains["block_end_layer_norm"]
    after = normalized(config, norm, x, error)
    error = norm.scale * after.scaled + after.plain
  return error * SLACK


# What is outside.


def check_arithmetic(config: ModelConfig) -> None:
  """Checks that the lemmas here are of a model's arithmetic.

  Whoever adds a kind of layer to the model adds its lemma here, and its name to
  the valid values.

  Raises:
    UsageError: a field has a value whose rounding is not bounded.
  """
  platform = jax.default_backend()
  check(
    platform in ("cpu", "gpu"),
    f"certify: a {platform} computes no IEEE float32 products; certify on a CPU"
    " (JAX_PLATFORMS=cpu)",
  )
  # Below "highest" GPUs round the factors of products.
  precisions = PRECISIONS if platform == "cpu" else ("highest",)
  lemmas = (  # (field, its value, the values that there are lemmas for)
    ("model.dtype", config.dtype, ("float32", "float64")),
    ("model.precision", config.precision, precisions),
    ("model.activation", config.activation, ("relu", "gelu")),
    ("model.norm_kind", config.norm_kind, ("layer", "rms")),
    ("attention.normalizer", config.attention.normalizer, ("softmax",)),
  )
  positions = config.positions
  check(
    not positions.segments or positions.kind in ("none", "sinusoidal"),
    f"certify: the rounding of positions.segments with positions.kind="
    f"{positions.kind} is not bounded; there are lemmas for none, sinusoidal",
  )
  for field, value, valid in lemmas:
    check(
      value in valid,
      f"certify: the rounding of {field}={value} is not bounded; there are"
      f" lemmas for {', '.join(valid)}",
    )
