"""This module bounds the rounding of a model's float32 arithmetic.

A bound here holds for *every evaluation* of the model's formulas whose
operations are as accurate as those of IEEE float32: sums in any order, products
fused with sums or not, on any device, by any program. It also bounds how far
the exact value is from the computed one.

Model of arithmetic. Let u = 2^-24.

1. Sums, differences and products of two numbers are those of real numbers,
   times 1 + d with |d| <= u.
2. exp, rsqrt and the reciprocal are off by at most EXP_ULPS, RSQRT_ULPS and
   RECIPROCAL_ULPS units in the last place (ulps), one of which is at most 2u of
   the result. The same bounds are assumed if a program uses a division or a
   square root instead. (tests/elementary_functions.py measures these errors for
   XLA's implementations.)
3. Sines and cosines of a cyclic index are off by at most SINUSOID times the
   period; GELU (tanh form) by at most GELU_ULPS ulps of its argument.
4. Numbers below 2^-126 may be flushed to zero, and nothing overflows. TINY,
   which is added to the error of every dense layer, residual sum and weighted
   sum of values, is far above what flushing changes in sums of 2^12 terms of at
   most 2^30 (LARGEST). Where a parameter or the input of a dense layer may be
   as large as that, bounds are infinite.

Float64 arithmetic satisfies these assumptions, too, with 2^-53 in place of u.
Products whose factors are rounded to TF32 or bfloat16 do not satisfy them:
`check_arithmetic` refuses them.

Notation. x* is the exact value of a vector, x^ that of any evaluation; |x| is
the 2-norm of a vector and the spectral norm of a matrix; x' is the transpose.
An *error* e of a vector is a number with |x^ - x*| <= e for every evaluation.
The value x that the program computed is an evaluation itself, so x^ is within
s e of it, where s, the `spread`, is 2. If x was computed in float64, s is
1 + 2^-20: every error bound here is u times a non-decreasing function of u, so
with u = 2^-53 it is below 2^-28 e, and 2^-20 leaves a margin (SINUSOID is
2^4 u, and sinusoids are float64 then, too). The *size*
|x| + s e bounds every |x^|. gamma(n) = n u / (1 - n u) bounds the relative
error of n successive operations (Higham, Accuracy and Stability of Numerical
Algorithms, section 3.1); a sum of n products is off by at most gamma(n) times
the sum of their magnitudes, in any order.

Lemmas, each with the function that uses it:

- Dense layer (`dense`). y = xW + b has the error |W| e + gamma(n + 2) (||W|| r
  + |b|), where ||W|| is the spectral norm of the matrix of W's magnitudes, n
  the number of inputs, and r the size of x. For each column w of W a sum of
  products is off by gamma(n) sum |x_i| |w_i|, and the vector of these sums is
  the vector of the |x_i| times the matrix of magnitudes.
- Normalization (`normalized`). z -> z / sigma with sigma = sqrt(|z|^2 / n +
  eps) has the Jacobian (I - z z' / (n sigma^2)) / sigma, whose spectral norm is
  at most 1 / sigma; sigma changes by at most e / sqrt(n) with z, and
  subtracting the mean is a projection. So exact normalization turns e into
  e / sigma, for the least sigma within the error. A mean is off by m =
  gamma(n) r / sqrt(n), which moves the vector by gamma(n) r. The variance is
  off by v = gamma(n + 4) r^2 / n + 2 M m, where M bounds the magnitudes of the
  exact and the computed mean, whose squares are 2 M m apart at most; if it is
  the mean of the squared differences from the computed mean, that adds m^2,
  which is below the last of the n + 4 roundings, as n <= 2^12. With t =
  v / sigma^2 <= 1/4, 1/sqrt(1 - t) <= 1 + t/2 (1 + t). The product with rsqrt
  is at most sqrt(n) long.
- Scores (`attention`). Softmax depends on differences of scores alone, so they
  are compared with the score of a *reference* position, that of the largest
  weight, whose key is k_0 and whose value is v_0. q'(k - k_0) changes by
  dq'(k - k_0) + q'(dk - dk_0); dq is dn W with the error dn of the normalized
  input, so |dq'(k - k_0)| <= |W (k - k_0)| |dn|, and likewise for keys. Added
  is the rounding of products, of the sum with the bias, of the difference from
  the row's largest score (any number will do: weights do not depend on it) and
  of exp. The result is a bound m_i on the error d_i of the exponent at every
  position i, relative to the reference, and m = max m_i.
- Weights (`attention`). log p^_i - log p*_i is d_i, minus log sum_j p*_j
  exp(d_j), plus a rounding of at most nu: that of the total, of its reciprocal,
  and of the product with the reciprocal. |d_i| is at most m_i; the logarithm's
  magnitude is at most m, and at most sum p*_j (exp(m_j) - 1) (if it is
  negative, by Jensen's inequality). Hence p^ <= p* exp(2m + nu) (`by_ratio`);
  and p* is within a factor of exp((s - 1)(2m + nu)) of the computed weight. But
  for nu, p^_i - p*_i is also the integral of p_i ((1 - p_i) d_i - sum over j !=
  i of p_j d_j) along the straight path from the exact to the evaluated
  exponents (`by_slope`). On that path every weight, and every sum of weights,
  is within a factor of exp(2m) of p*, and of exp(2sm + (s - 1) nu) of the
  computed one.
- Values (`attention`). sum p^ v^ - sum p* v* = sum p^ (v^ - v*) + sum (p^ - p*)
  (v* - v_0) + (sum p^ - 1) v_0, with the exact v_0. The last term is at most
  (exp(nu) - 1) |v_0| <= 2 nu |v_0|. The second is at most 2 max |v* - v_0|,
  whatever the weights. In the first, an error in a key's input passes with its
  weight times the spectral norm of the product of value and output kernel,
  summed over the heads, or with its largest weight times the product of the
  norms of all heads' kernels if that is less.
- Residual sum (`residual`). The error is the sum of the terms' errors, plus u
  times the size of the sum.
- MLP (`mlp`). relu(y^) - relu(y*) = D (y^ - y*) with a diagonal D whose entries
  are in [0, 1], and are 1 or 0 where a hidden unit is further from zero than
  its error. Let A and B be the kernels wi and wo. For a group of examples
  D = M + S E, where the diagonals M and S have the midpoints and radii of the
  entries that are possible in the group, and |E| <= 1. So |A D B| <= |A M B| +
  sqrt(|A S A'| |B' S B|) (`slope_of_groups`). GELU moves two numbers apart by a
  factor of GELU_SLOPE at most.
- Differences of logits (`difference_gain`). logit_i - logit_j is a product with
  w_i - w_j, whose error is |w_i - w_j| e, and the rounding of both logits.

Bounds are computed in the precision of the values themselves. They are sums,
products, quotients and roots of numbers that are not negative, so that they are
off by a few hundred u of themselves; every lemma's result is multiplied by
SLACK, which exceeds this. Only the terms of the vectors W (k - k_0) and W q
and of the matrices of `slope_of_groups` may cancel; to their norms bounds on
their own rounding are added. Accelerators do not round the factors of their
products either (EXACT_FACTORS).

Shapes: B contexts, with one row each; H heads, K head size, G keys that the row
sees, D model size, F hidden features of the MLP, V tokens.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check
from lengthgen_jax.models.layers import PRECISIONS, ModelConfig

# The constants of the model of arithmetic and of the lemmas; see the docstring.
U = 2.0**-24
EXP_ULPS = 4
RSQRT_ULPS = 4
RECIPROCAL_ULPS = 2
GELU_ULPS = 16
GELU_SLOPE = 1.13
SINUSOID = 2.0**-20
TINY = 2.0**-80
LARGEST = 2.0**30
SLACK = 1 + 2.0**-10
EXACT_FACTORS = "highest"  # the precision of products for jax.numpy
EPSILON = 1e-6  # eps of both kinds of normalization, as flax has it
NUM_SQUARINGS = 10  # in spectral_norm


def gamma(n: int) -> float:
  """Returns the bound n u / (1 - n u) of n relative errors of at most u."""
  return n * U / (1 - n * U)


# Error amplification of each layer, from its weights.


class Gain(NamedTuple):
  """How much a dense layer (or each head of one) changes errors and sizes.

  All are scalars, or [H] for each head; those of `difference_gain` are [V, V].

  Attributes:
    scaled_spectral_norm: the spectral norm of the kernel whose rows are
      multiplied by the scale of the normalization before the layer; that of the
      kernel itself if there is none.
    spectral_norm: the spectral norm of the kernel.
    magnitudes: the spectral norm of the matrix of the kernel's magnitudes.
    offset: the 2-norm of the bias.
    rounding: gamma(n + 2) for n inputs, a scalar.
  """

  scaled_spectral_norm: Any
  spectral_norm: Any
  magnitudes: Any
  offset: Any
  rounding: Any


class AttentionGain(NamedTuple):
  """How much an attention changes errors.

  A *scaled* kernel is one whose rows are multiplied by the scale of the
  normalization before it.

  Attributes:
    query, key, value: the Gain [H] of each head's projection.
    query_root, key_root: [H, K, K], a matrix R with R'R = W'W for the scaled
      kernel W of each head, so that |W x| = |R x|.
    out: the Gain of the output projection.
    out_heads: [H], the spectral norm of each head's part of it.
    value_out: [H], the spectral norm of each head's scaled value kernel times
      that part.
    all_values: the spectral norm of the scaled value kernel of all heads.
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
    slope: a bound on |scaled_wi_kernel D wo_kernel| for all diagonal D with
      entries in [0, 1].
    scaled_wi_kernel: [D, F], the kernel of `wi`, its rows multiplied by the
      scale of the normalization before it.
    wo_kernel: [F, D], the kernel of `wo`.
    wi_column_norms: [F], the 2-norms of the columns of scaled_wi_kernel.
  """

  wi: Gain
  wo: Gain
  slope: Any
  scaled_wi_kernel: Any
  wo_kernel: Any
  wi_column_norms: Any


class Scale(NamedTuple):
  """The largest |scale| of a normalization, and the 2-norm of its offset (the
  bias of flax's LayerNorm)."""

  scale: Any
  offset: Any


def spectral_norm(matrix: np.ndarray) -> float:
  """Returns an upper bound on a matrix's spectral norm.

  |A|^(2m) = |(A'A)^m| is at most the Frobenius norm of that power; with m =
  2^NUM_SQUARINGS the bound is at most 0.11 % too large for 64 columns. The
  relative rounding of float64 is below 1e-9.
  """
  matrix = np.asarray(matrix, np.float64)
  if matrix.shape[0] < matrix.shape[1]:
    matrix = matrix.T
  power, log_norm = matrix.T @ matrix, 0.0
  # After pass k, 2^k log_norm is the log of the Frobenius norm of (A'A)^(2^k).
  # The square that the last pass computes is unused.
  for k in range(NUM_SQUARINGS + 1):
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
    params: its parameters: the kernel [inputs, outputs], where inputs may be
      several axes, and maybe the bias.
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
  """Returns the MlpGain of an MLP.

  Args:
    params: its parameters.
    norm: those of the preceding normalization, or None.
  """
  scale = 1.0 if norm is None else np.asarray(norm["scale"])[:, None]
  wi = scale * np.asarray(params["wi"]["kernel"], np.float64)
  wo = np.asarray(params["wo"]["kernel"], np.float64)
  wi_gain = dense_gain(params["wi"], norm, False)
  wo_gain = dense_gain(params["wo"], None, False)
  largest = wi_gain.scaled_spectral_norm * wo_gain.spectral_norm
  return MlpGain(
    wi=wi_gain,
    wo=wo_gain,
    # D = (I + E) / 2 with |E| <= 1.
    slope=(spectral_norm(wi @ wo) + largest) / 2,
    scaled_wi_kernel=wi,
    wo_kernel=wo,
    wi_column_norms=np.linalg.norm(wi, axis=0),
  )


def block_gains(params: Mapping, memory_norm: Mapping | None) -> dict:
  """Returns the AttentionGain, MlpGain or Scale of each layer of a block, by
  the names of its parameters.

  Args:
    params: the parameters of the block.
    memory_norm: those of the normalization at the end of the encoder; None if
      there is none.
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


def difference_gain(params: Mapping, norm: Mapping | None) -> Gain:
  """Returns the Gain [V, V] of the differences logit_i - logit_j, at [i, j], of
  a layer of logits.

  Args:
    params: the parameters of the layer.
    norm: those of the normalization before it, or None.
  """
  kernel = np.asarray(params["kernel"], np.float64).T  # [V, D]
  bias = np.abs(np.asarray(params.get("bias", np.zeros(len(kernel)))))
  scale = 1.0 if norm is None else np.asarray(norm["scale"])
  distances = lambda rows: np.linalg.norm(rows[:, None] - rows, axis=-1)
  sizes = np.linalg.norm(kernel, axis=1)
  return Gain(
    distances(scale * kernel),
    distances(kernel),
    # Both logits are rounded.
    sizes[:, None] + sizes,
    bias[:, None] + bias,
    gamma(kernel.shape[1] + 2),
  )


# Primitives.


class InputBounds(NamedTuple):
  """What is known of the inputs of a dense layer.

  Their error is at most |scale * d| + error_after_scale for a vector d with
  |d| <= error_before_scale, where `scale` is that of the normalization before
  the layer. Without one, error_before_scale is zero. All have the shape of the
  inputs without their last axis.

  Attributes:
    error_before_scale: the error before that scale is applied.
    error_after_scale: the error that arises with or after it.
    size: a bound on the 2-norm of every evaluation.
  """

  error_before_scale: jax.Array
  error_after_scale: jax.Array
  size: jax.Array


def length(x: jax.Array) -> jax.Array:
  """Returns the 2-norm over the last axis."""
  return jnp.sqrt((x * x).sum(axis=-1))


def spread(x: Array) -> float:
  """Returns s: any evaluation is within s * error of the computed value x.

  Only the dtype of x matters.
  """
  return 1 + 2.0**-20 if x.dtype == jnp.float64 else 2.0


def expm1_bound(exponent: jax.Array) -> jax.Array:
  """Returns an upper bound on exp(exponent) - 1 for an exponent of at least 0;
  inf above 1."""
  return jnp.where(exponent <= 1, exponent * (1 + exponent), jnp.inf)


def compute_once(error: Any) -> Any:
  """Returns errors (any pytree) unchanged, as values that XLA computes once.

  Without this, it computes them again for each element of a larger array that
  they are broadcast to, which takes three times as long as all the rest.
  """
  return jax.lax.optimization_barrier(error)


def unnormalized(x: jax.Array, error: jax.Array) -> InputBounds:
  """Returns what is known of values x [..., D] with an error [...]."""
  size = length(x) + spread(x) * error
  return compute_once(InputBounds(jnp.zeros_like(error), error, size))


def normalized(
  config: ModelConfig, norm: Scale, x: jax.Array, error: jax.Array
) -> InputBounds:
  """Returns what is known of the outputs of a normalization of x [..., D] with
  an error [...].

  Args:
    config: the hyper-parameters of the model.
    norm: the Scale of the normalization.
    x: the values before it.
    error: their error.
  """
  n, centered = x.shape[-1], x
  size = length(x) + spread(x) * error
  variance_error = gamma(n + 4) * size**2 / n
  if config.norm_kind == "layer":
    mean = x.mean(axis=-1)
    centered = x - mean[..., None]
    mean_error = gamma(n) * size / n**0.5
    largest_mean = jnp.abs(mean) + spread(x) * error / n**0.5 + 2 * mean_error
    variance_error += 2 * largest_mean * mean_error
  square = (centered * centered).mean(axis=-1) + EPSILON - variance_error
  min_sigma = jnp.sqrt(jnp.maximum(square, 0)) / SLACK
  min_sigma -= spread(x) * error * SLACK / n**0.5
  min_sigma = jnp.maximum(min_sigma, TINY)
  t = variance_error / min_sigma**2 + 2 * U
  relative_root_error = jnp.where(t <= 0.25, t / 2 * (1 + t), jnp.inf)
  error_before = error / min_sigma + gamma(n + 4) * size / min_sigma
  error_before += (relative_root_error + (2 * RSQRT_ULPS + 3) * U) * n**0.5
  size = norm.scale * (n**0.5 + 2 * error_before) + norm.offset
  error_after = U * size
  size += 2 * error_after
  return compute_once(
    InputBounds(error_before * SLACK, error_after * SLACK, size * SLACK)
  )


def dense(gain: Gain, inputs: InputBounds) -> jax.Array:
  """Returns the error of a dense layer's outputs.

  If its gain has an axis of heads, so has the error. If it has the [B, V] of
  `difference_gain` at the right token of each of B contexts, the error is that
  of the right token's logit minus that of each token.
  """
  if np.ndim(gain.spectral_norm):
    inputs = InputBounds(*(x[..., None] for x in inputs))
  error = gain.scaled_spectral_norm * inputs.error_before_scale
  error = error + gain.spectral_norm * inputs.error_after_scale
  error += gain.rounding * (gain.magnitudes * inputs.size + gain.offset)
  error = jnp.where(inputs.size < LARGEST, error * SLACK + TINY, jnp.inf)
  return compute_once(error)


def residual(x: jax.Array, error: jax.Array) -> jax.Array:
  """Returns the error of a sum x; `error` is the sum of its terms' errors."""
  return (error + U * (length(x) + spread(x) * error)) * SLACK + TINY


def bounded_weight(weight: jax.Array, factor: jax.Array) -> jax.Array:
  """Returns min(weight * factor, 1) * SLACK, with 1 in place of nan."""
  product = weight * factor
  return jnp.where(product < 1, product, 1.0) * SLACK


def local_dense_error(gain: Gain, inputs: InputBounds) -> jax.Array:
  """Returns the part of the error of a dense layer's outputs that does not come
  from `inputs.error_before_scale`."""
  zeros = jnp.zeros_like(inputs.error_before_scale)
  return dense(gain, inputs._replace(error_before_scale=zeros))


def attention(
  gain: AttentionGain,
  inputs: InputBounds,
  key_inputs: InputBounds,
  query: jax.Array,
  key: jax.Array,
  value: jax.Array,
  bias: jax.Array,
  activations: Mapping,
) -> jax.Array:
  """Returns the error [B] of the output of an attention.

  Args:
    gain: the gain of its projections.
    inputs: [B], of the query projection.
    key_inputs: [B, G], of the key and value projections.
    query: [B, H, K], as projected.
    key, value: [B, H, G, K].
    bias: [H, G], as it is added to the scores.
    activations: "scores" (before the bias is added) and "weights", [B, H, G].
  """
  (num_keys, head_dim), spread_factor = key.shape[-2:], spread(key)
  heads_first = lambda x: x.swapaxes(-1, -2)  # [B, G, H] -> [B, H, G]
  is_unmasked = bias > -jnp.inf
  weights = activations["weights"]
  # Everything is compared with the reference, the key of the largest weight.
  reference = weights.argmax(axis=-1)[..., None]
  at_reference = lambda x: jnp.take_along_axis(x, reference, axis=2)
  vector_at_reference = lambda x: jnp.take_along_axis(
    x, reference[..., None], axis=2
  )
  key_difference = key - vector_at_reference(key)
  value_difference = value - vector_at_reference(value)
  key_length, value_length = compute_once((length(key), length(value)))
  key_distance, value_distance = compute_once(
    (length(key_difference), length(value_difference))
  )

  # Scores, relative to that of the reference.
  query_local_error = local_dense_error(gain.query, inputs)[..., None]
  query_error = dense(gain.query, inputs)[..., None]
  query_length = length(query)[..., None]
  key_local_error = heads_first(local_dense_error(gain.key, key_inputs))
  key_error = heads_first(dense(gain.key, key_inputs))

  def length_through(root: jax.Array, x: jax.Array) -> jax.Array:
    # |W x| = |R x|, by head; its terms may cancel, so that what their products
    # are off by is added.
    y = jnp.einsum("hij,bh...j->bh...i", root, x, precision=EXACT_FACTORS)
    root_norm = length(root.reshape(len(root), -1))
    root_norm = root_norm.reshape(-1, *(1,) * (x.ndim - 3))  # [H] or [H, 1]
    rounding = gamma(head_dim + 2) * root_norm * length(x)
    return compute_once(length(y) + rounding)

  logit_error_from_query = length_through(gain.query_root, key_difference)
  logit_error_from_query *= inputs.error_before_scale[:, None, None]
  logit_error_from_query += query_local_error * key_distance
  logit_error_from_query += query_error * (key_error + at_reference(key_error))
  logit_error_from_key = length_through(gain.key_root, query)[..., None]
  logit_error_from_key = (
    logit_error_from_key * key_inputs.error_before_scale[:, None]
    + key_local_error * query_length
  )
  logit_error_from_key += spread_factor * query_error * key_error
  key_size = key_length + spread_factor * key_error
  query_size = query_length + spread_factor * query_error
  logit_error_from_key += gamma(head_dim + 6) * query_size * key_size
  scale = head_dim**-0.5
  finite_bias = jnp.where(is_unmasked, bias, 0.0)
  logits = activations["scores"] + finite_bias
  logit_error_from_key = scale * logit_error_from_key + 2 * EXP_ULPS * U
  logit_error_from_key += U * (jnp.abs(logits) + 2 * jnp.abs(finite_bias))
  logit_error_from_key += U * (1 + jnp.abs(logits - at_reference(logits)))
  logit_error = (
    scale * logit_error_from_query
    + logit_error_from_key
    + at_reference(logit_error_from_key)
  )
  logit_error = compute_once(logit_error)
  is_other = is_unmasked & (jnp.arange(num_keys) != reference)
  logit_error = jnp.where(is_other, logit_error, 0.0) * SLACK
  largest = logit_error.max(axis=-1, keepdims=True)
  # The rounding above is that of the computed logits; those of another
  # evaluation may be larger by a few times the largest error.
  logit_error = jnp.where(is_other, logit_error + 8 * U * largest, 0.0)

  # Weights. (`total_error` is nu in the lemma.)
  total_error = gamma(num_keys + 2 + 2 * RECIPROCAL_ULPS)
  largest = logit_error.max(axis=-1, keepdims=True)
  mean = (weights * expm1_bound(logit_error)).sum(axis=-1, keepdims=True)
  computed_ratio = 1 + expm1_bound(
    (spread_factor - 1) * (2 * largest + total_error)
  )
  mean = mean * computed_ratio
  by_ratio = computed_ratio * expm1_bound(
    logit_error + jnp.minimum(mean, largest) + total_error
  )
  weighted = weights * logit_error
  by_slope = (1 + expm1_bound(spread_factor * (4 * largest + total_error))) * (
    (1 - weights) * logit_error
    + weighted.sum(axis=-1, keepdims=True)
    - weighted
  ) + 2 * total_error
  weight_error = compute_once(
    bounded_weight(weights, jnp.minimum(by_ratio, by_slope))
  )
  # Values.
  value_error = heads_first(dense(gain.value, key_inputs))
  value_distance_bound = (
    value_distance + value_error + at_reference(value_error)
  )
  value_distance_bound = jnp.where(is_other, value_distance_bound, 0.0)
  value_mix_error = jnp.minimum(
    (jnp.where(is_other, weight_error, 0.0) * value_distance_bound).sum(
      axis=-1
    ),
    2 * value_distance_bound.max(axis=-1),
  )
  weight_bound = bounded_weight(
    weights, 1 + expm1_bound(spread_factor * (2 * largest + total_error))
  )
  weight_bound = compute_once(jnp.where(is_unmasked, weight_bound, 0.0))
  value_size = value_length + spread_factor * value_error
  value_mix_error += total_error * (at_reference(value_size)[..., 0] * 2)
  value_mix_error += gamma(num_keys + 2) * (weight_bound * value_size).sum(
    axis=-1
  )
  value_local_error = heads_first(local_dense_error(gain.value, key_inputs))
  value_mix_error += (weight_bound * value_local_error).sum(axis=-1)
  value_mix_error = value_mix_error * SLACK + TINY  # [B, H]
  per_head_error = (gain.out_heads * value_mix_error).sum(axis=-1)
  error = jnp.minimum(
    per_head_error, gain.out.spectral_norm * length(value_mix_error)
  )
  # Errors of the keys' inputs pass through values and outputs together.
  per_head_gain = (gain.value_out[:, None] * weight_bound).sum(axis=1)  # [B, G]
  joint_gain = (
    gain.all_values * gain.out.spectral_norm * weight_bound.max(axis=1)
  )
  error += (
    jnp.minimum(per_head_gain, joint_gain) * key_inputs.error_before_scale
  ).sum(axis=-1)
  # The rounding of the output projection.
  context = (weights[..., None] * value).sum(axis=-2)
  context_error = value_mix_error + (weight_bound * value_error).sum(axis=-1)
  size = length(context.reshape(len(context), -1))
  size += spread_factor * length(context_error)
  zeros = jnp.zeros_like(size)
  return error * SLACK + dense(gain.out, InputBounds(zeros, zeros, size))


def mlp(
  gain: MlpGain,
  inputs: InputBounds,
  hidden: jax.Array,
  activation: str,
  *,
  group: int,
) -> jax.Array:
  """Returns the error [B] of the output of an MLP.

  Args:
    gain: the gains of its layers.
    inputs: [B], of the first layer.
    hidden: [B, F], the outputs of the first layer, before the activation.
    activation: "relu" or "gelu".
    group: how many examples share a bound on the MLP's slope, a divisor of B.
  """
  error = dense(gain.wi, inputs)
  if activation == "gelu":
    size = length(hidden) + spread(hidden) * error
    error = GELU_SLOPE * error + GELU_ULPS * 2 * U * size
    return dense(gain.wo, InputBounds(jnp.zeros_like(error), error, size))
  local_error = local_dense_error(gain.wi, inputs)
  slope = slope_of_groups(gain, inputs, local_error, hidden, group)
  size = length(jnp.maximum(hidden, 0)) + spread(hidden) * error
  error = slope * inputs.error_before_scale * SLACK
  return error + dense(
    gain.wo, InputBounds(jnp.zeros_like(local_error), local_error, size)
  )


def slope_of_groups(
  gain: MlpGain,
  inputs: InputBounds,
  local_error: jax.Array,
  hidden: jax.Array,
  group: int,
) -> jax.Array:
  """Returns bounds [B] on |A D B| for a diagonal D with relu(y^) - relu(y*)
  = D (y^ - y*); A and B are gain.scaled_wi_kernel and gain.wo_kernel.

  Here y^ and y* are any evaluation and the exact value of the hidden units of
  any of `group` consecutive examples, which share a bound.

  Args:
    gain: the gains of the layers.
    inputs: [B], of the first layer.
    local_error: [B], the local_dense_error of the first layer's outputs.
    hidden: [B, F], these outputs, before the activation.
    group: how many examples share a bound, a divisor of B.
  """
  distance = (
    inputs.error_before_scale[:, None] * gain.wi_column_norms
    + local_error[:, None]
  )
  distance = spread(hidden) * SLACK * distance
  by_group = lambda x: x.reshape(len(x) // group, group, -1)
  always = by_group(hidden > distance).all(axis=1).astype(hidden.dtype)
  never = by_group(hidden < -distance).all(axis=1).astype(hidden.dtype)
  midpoint, radius = (1 + always - never) / 2, (1 - always - never) / 2

  def norm(a: jax.Array, diagonal: jax.Array, b: jax.Array) -> jax.Array:
    # Bounds [B / group] on |a diag(d) b|, for each row d >= 0 of `diagonal`.
    # The error of an entry is at most gamma(F + 2) times the sum of its terms'
    # magnitudes, which is at most the product of the lengths of a row of
    # a diag(sqrt(d)) and a column of diag(sqrt(d)) b. So the norm of all errors
    # is at most gamma(F + 2) times the product of the Frobenius norms of these
    # two matrices, whose squares are in `sizes`.
    product = partial(jnp.einsum, precision=EXACT_FACTORS)
    matrices = product("df,gf,fe->gde", a, diagonal, b)
    sizes = [product("gf,df->g", diagonal, x * x) for x in (a, b.T)]
    rounding = gamma(len(b) + 2) * jnp.sqrt(sizes[0]) * jnp.sqrt(sizes[1])
    return schatten_norm(matrices) + rounding * SLACK

  wi, wo = gain.scaled_wi_kernel, gain.wo_kernel
  product_of_side_norms = norm(wi, radius, wi.T) * norm(wo.T, radius, wo)
  slope = norm(wi, midpoint, wo) + jnp.sqrt(product_of_side_norms)
  return jnp.repeat(jnp.minimum(slope * SLACK, gain.slope), group)


def schatten_norm(matrix: jax.Array) -> jax.Array:
  """Returns bounds [...] on the spectral norms of matrices [..., D, E].

  They are the Schatten p-norms, that is, the p-norms of the singular values,
  times a factor for the rounding of the products here: with n = max(D, E), that
  of a product of two of these matrices has at most the norm gamma(n + 8) times
  the product of their Frobenius norms, each of which is at most sqrt(D) times
  the spectral norm; the roots that follow shrink it. p is 16, and 128 in
  float64, which has powers of matrices as large as that. A norm below 1e-14,
  whose powers float32 may lose, becomes 1e-14.
  """
  num_rows, num_columns = matrix.shape[-2:]
  factor = 1 + 2 * num_rows * gamma(max(num_rows, num_columns) + 8)
  product = partial(jnp.matmul, precision=EXACT_FACTORS)
  power = product(matrix, matrix.swapaxes(-1, -2))
  size = jnp.maximum(jnp.abs(power).max((-2, -1), keepdims=True), TINY)
  power = power / size  # so that nothing overflows
  num_squarings = 5 if matrix.dtype == jnp.float64 else 2
  for _ in range(num_squarings):
    power = product(power, power)
  # With k squarings this is the 2^(k + 2)-norm of A / sqrt(size), to the power
  # of 2^(k + 1).
  norm = jnp.sqrt((power * power).sum((-2, -1)))
  for _ in range(num_squarings):
    norm = jnp.sqrt(norm)
  norm *= size[..., 0, 0]
  return jnp.maximum(jnp.sqrt(norm) * factor, 1e-14)


# Layers of the model.


def model_gains(params: Mapping, head: str) -> dict:
  """Returns the gains of a model, by the names of its parameters: `block_gains`
  of blocks, the Scale of other normalizations, `difference_gain` of the head.

  Args:
    params: the parameters of one seed.
    head: the name of the output head whose margins are bounded.
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
  gains[name] = difference_gain(params[name], params.get("decoder_norm"))
  largest = max(np.abs(x).max() for x in jax.tree.leaves(params))
  if largest >= LARGEST:
    return jax.tree.map(lambda x: np.full_like(x, np.inf, np.float32), gains)
  # The factor makes up for the rounding of norms to float32. That of kernels
  # and roots, in whose products terms may cancel, is counted in the bounds on
  # these products: gamma(F + 2) in slope_of_groups, gamma(head_dim + 2) in
  # `attention`.
  return jax.tree.map(lambda x: np.float32(np.multiply(x, 1 + 1e-6)), gains)


def embeddings(config: ModelConfig, x: jax.Array) -> jax.Array:
  """Returns the errors [...] of embeddings x [..., D], which are sums of a
  token's, a segment's and a position's, of those that the model has."""
  positions, error = config.positions, jnp.zeros_like(x[..., 0])
  root = x.shape[-1] ** 0.5
  if positions.segments:
    # The sum with the segment embedding has at most the norm |x| + sqrt(D),
    # because the position is absent or a sinusoid.
    error += U * (length(x) + root)
  if positions.kind != "none":
    error += U * length(x)
  if positions.kind == "sinusoidal":
    error += SINUSOID * positions.cyclic_period * root
  return error * SLACK


def layer_inputs(
  config: ModelConfig, norm: Scale | None, x: jax.Array, error: jax.Array
) -> InputBounds:
  """Returns what is known of x [..., D] with an error [...] after a
  normalization, or of x itself if `norm` is None."""
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
  activations: Mapping,
  sublayers: Mapping,
  *,
  group: int,
) -> jax.Array:
  """Returns the error [B] of one token's state after a block.

  Args:
    config: the hyper-parameters of the model.
    params: the parameters of the block.
    gains: the block's gains (block_gains).
    x: [B, D], the states before the block.
    error: [B], their errors.
    keys: by site, keys and values [B, H, G, K] and the InputBounds [B, G] of
      their projections.
    biases: by site, [H, G], before a learned factor on them.
    activations: the block's activations of one row; by site, "scores" and
      "weights" [B, H, 1, G].
    sublayers: the outputs of its layers, as flax captures them.
    group: how many examples share a bound on the MLP's slope, a divisor of B.
  """

  def inputs(name: str, x: jax.Array, error: jax.Array) -> InputBounds:
    norm = gains.get(f"pre_{name}_layer_norm")
    return layer_inputs(config, norm, x, error)

  def add(name: str, x, update, error):
    x = x + update
    error = residual(x, error)
    name = f"post_{name}_layer_norm"
    if name in gains:
      after = normalized(config, gains[name], x, error)
      x = sublayers[name]["__call__"][0][:, 0]
      error = (
        gains[name].scale * after.error_before_scale + after.error_after_scale
      )
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
      {kind: a[:, :, 0] for kind, a in activations[site].items()},
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
    error = norm.scale * after.error_before_scale + after.error_after_scale
  return error * SLACK


# Supported configurations.


def check_arithmetic(config: ModelConfig) -> None:
  """Checks that the lemmas cover a model's arithmetic.

  Whoever adds a kind of layer to the model adds its lemma to this module, and
  its name to the valid values below.

  Raises:
    UsageError: a field has a value whose rounding is not bounded, or the device
      is neither a CPU nor a GPU.
  """
  platform = jax.default_backend()
  check(
    platform in ("cpu", "gpu"),
    f"certify: products of a {platform} are not those of IEEE float32; certify"
    " on a CPU (JAX_PLATFORMS=cpu)",
  )
  precisions = PRECISIONS if platform == "cpu" else (EXACT_FACTORS,)
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
