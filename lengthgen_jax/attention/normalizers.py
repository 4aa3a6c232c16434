"""This module turns the scores of attention into weights.

A normalizer is a function of the logits of a row: temperature times scores plus
bias, -inf where a key is closed. Closed keys have a weight of zero and change
nothing else, and a row whose keys are all closed has zero weights and zero
gradients. Shapes: B batch, H heads, T rows, S keys, G keys that a row sees at
most.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check
from lengthgen_jax.registry import Registry

LOWEST = -1e30  # below the logit of every open key, above -inf
TINY = 1e-30  # the divisor in place of a sum that is zero
# After so many steps the threshold of entmax is as exact as float64 (float32
# needs fewer): of Newton's method for α up to 1.5 and from there up to 2, of
# bisection for α above 2. Measured on rows of 5 to 4 096 logits of many
# distributions.
NEWTON_STEPS, SPARSE_NEWTON_STEPS, BISECTIONS = 7, 11, 50


@dataclasses.dataclass(frozen=True)
class AttentionConfig:
  """An AttentionConfig says how scores become weights, at every site.

  Attributes:
    normalizer: a name in NORMALIZERS.
    alpha: α of entmax, above 1: the greater it is, the sparser are the weights.
  """

  normalizer: str = "softmax"
  alpha: float = 1.5

  @property
  def label(self) -> str:
    """Returns the normalizer's name, with α if it has one: "entmax 1.5"."""
    has_alpha = NORMALIZERS[self.normalizer].has_alpha
    return self.normalizer + (f" {self.alpha:g}" if has_alpha else "")


SOFTMAX = AttentionConfig()


class Normalizer(NamedTuple):
  """A Normalizer is one way to turn logits into weights.

  Attributes:
    weights: function (logits, index, config) -> weights, over the last axis, of
      the shape and dtype of the logits. `logits` [B, H, T, S or G] are float32
      or wider; `index` has the positions of the keys, [S] ascending or [B or 1,
      H, T, G] in any order; `config` is the AttentionConfig.
    ordered: whether the order of the keys matters. Such a normalizer is for
      decoder-only models, whose keys are one sequence.
    has_alpha: whether the weights depend on config.alpha.
  """

  weights: Callable[[jax.Array, Array, AttentionConfig], jax.Array]
  ordered: bool = False
  has_alpha: bool = False


def check_normalizer(name: str, normalizer: Normalizer) -> None:
  """Raises UsageError unless a Normalizer with a function is registered."""
  check(
    isinstance(normalizer, Normalizer) and callable(normalizer.weights),
    f"register: normalizer {name!r} is no Normalizer with a function",
  )


@jax.custom_jvp
def masked_softmax(logits: jax.Array) -> jax.Array:
  """Returns the softmax over the last axis, zeros where every logit is -inf.

  Args:
    logits: [..., S] float32 or wider, -inf where a key is closed.

  Returns:
    The weights [..., S], of the dtype of the logits.
  """
  # `maximum` and not `where`, which breaks XLA's fusion on CPU (6 % of a step);
  # and one division for each row, because divisions are slow.
  peak = jnp.maximum(logits.max(axis=-1, keepdims=True), LOWEST)
  unnormalized = jnp.exp(logits - peak)
  total = unnormalized.sum(axis=-1, keepdims=True)
  return unnormalized * (1.0 / jnp.maximum(total, TINY))


@masked_softmax.defjvp
def _masked_softmax_jvp(primals, tangents):
  """Computes the derivative from the weights, so that the backward pass needs
  neither the logits nor another softmax."""
  weights, tangent = masked_softmax(*primals), tangents[0]
  mean = (weights * tangent).sum(axis=-1, keepdims=True)
  return weights, weights * (tangent - mean)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def entmax(logits: jax.Array, alpha: float) -> jax.Array:
  """Returns α-entmax over the last axis, zeros where every logit is -inf.

  Weights are [(α - 1)·z - τ]_+ ^ (1 / (α - 1)), with the threshold τ that makes
  their sum one (Peters, Niculae, Martins 2019). Logits more than 1 / (α - 1)
  below the greatest have a weight of exactly zero. α = 2 is sparsemax (Martins,
  Astudillo 2016).

  The threshold is where the norm of [(α - 1)·z - τ]_+ of order q = 1 / (α - 1)
  is one. For α <= 2 the norm is a convex function of τ, nearly a line, so that
  Newton's method converges from the left, in fewer passes than bisection and
  without a sort. For α > 2 the threshold is found by bisection.

  Args:
    logits: [..., S] float32 or wider, -inf where a key is closed.
    alpha: α, above 1.

  Returns:
    The weights [..., S], of the dtype of the logits.
  """
  scaled = (alpha - 1.0) * logits
  x = scaled - jnp.maximum(scaled.max(axis=-1, keepdims=True), LOWEST)
  order = 1.0 / (alpha - 1.0)
  row_sum = lambda x: x.sum(axis=-1, keepdims=True)
  # The greatest weight is from 1 / S to 1, so τ, of logits whose greatest is 0,
  # is from -1 to -S^(1 - α).
  threshold = jnp.full_like(x[..., :1], -1.0)
  if alpha > 2.0:
    width = 1.0 - x.shape[-1] ** (1.0 - alpha)
    for _ in range(BISECTIONS):
      width /= 2.0
      middle = threshold + width
      mass = row_sum(_power(jnp.maximum(x - middle, 0.0), order))
      threshold = jnp.where(mass >= 1.0, middle, threshold)
  else:
    steps = NEWTON_STEPS if alpha <= 1.5 else SPARSE_NEWTON_STEPS
    for _ in range(steps):
      # Newton's step (norm - 1) / -norm', where norm = mass^(1 / q) and
      # norm' = -mass^(1 / q - 1) · slope; mass^(1 - 1 / q) times both.
      excess = jnp.maximum(x - threshold, 0.0)
      slopes = _power(excess, order - 1.0)
      mass, slope = row_sum(excess * slopes), row_sum(slopes)
      gap = mass - _power(mass, 1.0 - 1.0 / order)
      threshold += gap / jnp.maximum(slope, TINY)
  weights = _power(jnp.maximum(x - threshold, 0.0), order)
  return weights * (1.0 / jnp.maximum(row_sum(weights), TINY))


@entmax.defjvp
def _entmax_jvp(alpha, primals, tangents):
  """Computes the derivative s·(dz - <s, dz> / Σs), s = p^(2 - α) on the
  support, from the weights p alone."""
  weights, tangent = entmax(*primals, alpha), tangents[0]
  slope = _power(weights, 2.0 - alpha)
  total = jnp.maximum(slope.sum(axis=-1, keepdims=True), TINY)
  mean = (slope * tangent).sum(axis=-1, keepdims=True) / total
  return weights, slope * (tangent - mean)


def _power(x: jax.Array, exponent: float) -> jax.Array:
  """Returns x^exponent of x >= 0, and 0 at x = 0 whatever the exponent."""
  if exponent == 0.0:
    return (x > 0.0).astype(x.dtype)
  if exponent < 0.0:
    is_positive = x > 0.0
    return jnp.where(is_positive, jnp.where(is_positive, x, 1.0) ** exponent, 0)
  # A root and whole exponents are faster than any other power.
  if exponent == 0.5:
    return jnp.sqrt(x)
  return x ** (int(exponent) if float(exponent).is_integer() else exponent)


def stick_breaking(logits: jax.Array, index: Array) -> jax.Array:
  """Returns stick-breaking weights over the last axis.

  Each key, the last one first, takes the share sigmoid(z) of what the later
  ones have left (Tan et al. 2024, "Scaling Stick-Breaking Attention"). What the
  first one leaves is nobody's, so weights sum to at most one. Here a row's own
  token is among its keys, as with every normalizer; the paper leaves it out.

  Args:
    logits: [B, H, T, S or G] float32 or wider, -inf where a key is closed.
    index: positions of the keys, [S] ascending or [B or 1, H, T, G] in any
      order.

  Returns:
    The weights, of the shape and dtype of the logits.
  """
  is_open = logits > LOWEST
  finite = jnp.where(is_open, logits, 0.0)
  # The logarithm of the share that a key leaves, and of what all later ones do.
  log_left = jnp.where(is_open, jax.nn.log_sigmoid(-finite), 0.0)
  if index.ndim == 1:
    axis = log_left.ndim - 1
    log_rest = jax.lax.cumsum(log_left, axis=axis, reverse=True) - log_left
  else:
    is_later = index[..., None, :] > index[..., :, None]
    log_rest = (is_later * log_left[..., None, :]).sum(axis=-1)
  weights = jnp.exp(jax.nn.log_sigmoid(finite) + log_rest)
  return jnp.where(is_open, weights, 0.0)


NORMALIZERS = Registry(
  "normalizer",
  {
    "softmax": Normalizer(lambda logits, index, config: masked_softmax(logits)),
    "entmax": Normalizer(
      lambda logits, index, config: entmax(logits, config.alpha),
      has_alpha=True,
    ),
    "sparsemax": Normalizer(lambda logits, index, config: entmax(logits, 2.0)),
    "stick_breaking": Normalizer(
      lambda logits, index, config: stick_breaking(logits, index),
      ordered=True,
    ),
  },
  check_normalizer,
)
