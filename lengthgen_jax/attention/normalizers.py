"""Normalizers turn the logits of attention into weights.

Logits are temperature times scores plus bias, -inf where a key is closed.
Closed keys have zero weight and do not affect the others, and a row whose keys
are all closed has zero weights and zero gradients. Shapes: B batch, H heads, T
rows, S keys, G the largest number of keys that a row sees. Dense attention has
logits of all S keys; attention along lines has those of the G gathered keys.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lengthgen_jax import sections
from lengthgen_jax.coordinates import Array
from lengthgen_jax.registry import Registry, entry_check

# Below the logit of every open key, however large its bias, and above -inf.
LOWEST = -3e38
TINY = 1e-30  # lower bound of divisors, so that an all-closed row is not 0 / 0
# After so many steps the threshold of entmax is as exact as float64 can be
# (float32 needs fewer); measured on rows of 5 to 4 096 logits of many
# distributions.
NEWTON_STEPS = 7  # for α <= 1.5
SPARSE_NEWTON_STEPS = 11  # for α above


class AttentionConfig(sections.Attention):
  """How scores become weights, in every attention."""

  @property
  def label(self) -> str:
    """The normalizer's name, with α if it has one: "entmax 1.5"."""
    has_alpha = NORMALIZERS[self.normalizer].has_alpha
    return self.normalizer + (f" {self.alpha:g}" if has_alpha else "")


class Normalizer(NamedTuple):
  """One way to turn logits into weights.

  `weights` is a function (logits, key_positions, config) -> weights over the
  last axis, of the shape and dtype of the logits. `logits` [B, H, T, S or G]
  are float32 or wider; `key_positions` are [S] ascending or [B or 1, H, T, G]
  in any order.
  """

  weights: Callable[[jax.Array, Array, AttentionConfig], jax.Array]
  # on that of the keys: for decoder-only models, whose keys are one sequence
  depends_on_order: bool = False
  has_alpha: bool = False  # whether the weights depend on config.alpha


@jax.custom_jvp
def masked_softmax(logits: jax.Array) -> jax.Array:
  """Returns the softmax over the last axis, zeros where every logit is -inf."""
  # `where` would break XLA's fusion on CPU (6 % of a training step). There is
  # one division for each row, because divisions are slow.
  peak = logits.max(axis=-1, keepdims=True, initial=LOWEST)
  unnormalized = jnp.exp(logits - peak)
  total = unnormalized.sum(axis=-1, keepdims=True)
  return unnormalized * (1.0 / jnp.maximum(total, TINY))


@masked_softmax.defjvp
def _masked_softmax_jvp(primals, tangents):
  weights, tangent = masked_softmax(*primals), tangents[0]
  mean = (weights * tangent).sum(axis=-1, keepdims=True)
  return weights, weights * (tangent - mean)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def entmax(logits: jax.Array, alpha: float) -> jax.Array:
  """Returns α-entmax, 1 < α <= 2, over the last axis, zeros where every logit
  is -inf.

  With x = (α - 1)·logits and q = 1 / (α - 1), weights are [x - τ]_+ ^ q, with
  the threshold τ that makes their sum one (Peters, Niculae, Martins 2019). α =
  2 is sparsemax (Martins, Astudillo 2016).
  """
  scaled = (alpha - 1.0) * logits
  x = scaled - scaled.max(axis=-1, keepdims=True, initial=LOWEST)
  q = 1.0 / (alpha - 1.0)
  row_sum = lambda x: x.sum(axis=-1, keepdims=True)
  # The threshold is where the norm of order q >= 1 of [x - τ]_+ is one. The
  # norm is convex and nearly linear in τ, so that Newton's method converges
  # from the left, in fewer passes than bisection and without a sort.
  # After the shift the greatest logit is 0 and its weight is in [1 / S, 1], so
  # τ is in [-1, -S^(1 - α)].
  threshold = jnp.full_like(x[..., :1], -1.0)
  steps = NEWTON_STEPS if alpha <= 1.5 else SPARSE_NEWTON_STEPS
  for _ in range(steps):
    # Newton's step (norm - 1) / -norm', where norm = mass^(1 / q) and
    # norm' = -mass^(1 / q - 1) · slope; numerator and denominator are both
    # multiplied by mass^(1 - 1 / q).
    excess = jnp.maximum(x - threshold, 0.0)
    powers = _power(excess, q - 1.0)
    mass, slope = row_sum(excess * powers), row_sum(powers)
    numerator = mass - _power(mass, 1.0 - 1.0 / q)
    threshold += numerator / jnp.maximum(slope, TINY)
  weights = _power(jnp.maximum(x - threshold, 0.0), q)
  return weights * (1.0 / jnp.maximum(row_sum(weights), TINY))


@entmax.defjvp
def _entmax_jvp(alpha, primals, tangents):
  """The derivative from the weights p alone: s·(dz - <s, dz> / Σs) with s =
  p^(2 - α) where p > 0, else 0."""
  weights, tangent = entmax(*primals, alpha), tangents[0]
  slope = _power(weights, 2.0 - alpha)
  total = jnp.maximum(slope.sum(axis=-1, keepdims=True), TINY)
  mean = (slope * tangent).sum(axis=-1, keepdims=True) / total
  return weights, slope * (tangent - mean)


def _power(x: jax.Array, exponent: float) -> jax.Array:
  """Returns x^exponent for x and exponent >= 0, where 0^0 is 0."""
  if exponent == 0.0:
    return (x > 0.0).astype(x.dtype)
  # sqrt and integer powers are faster than a general power.
  if exponent == 0.5:
    return jnp.sqrt(x)
  return x ** (int(exponent) if float(exponent).is_integer() else exponent)


def stick_breaking(logits: jax.Array, key_positions: Array) -> jax.Array:
  """Returns stick-breaking weights over the last axis.

  Each key, the last one first, takes the share sigmoid(z) of what the later
  ones have left (Tan et al. 2024, "Scaling Stick-Breaking Attention"). What the
  first one leaves is not assigned, so weights sum to at most one. Here the key
  at the row's own position is among its keys, as with every normalizer; the
  paper leaves it out.
  """
  is_open = logits > LOWEST
  finite = jnp.where(is_open, logits, 0.0)
  # log(1 - share) of each key
  log_left = jnp.where(is_open, jax.nn.log_sigmoid(-finite), 0.0)
  # log of what all later keys leave
  if key_positions.ndim == 1:
    axis = log_left.ndim - 1
    log_left_by_later = (
      jax.lax.cumsum(log_left, axis=axis, reverse=True) - log_left
    )
  else:
    is_later = key_positions[..., None, :] > key_positions[..., :, None]
    log_left_by_later = (is_later * log_left[..., None, :]).sum(axis=-1)
  weights = jnp.exp(jax.nn.log_sigmoid(finite) + log_left_by_later)
  return jnp.where(is_open, weights, 0.0)


NORMALIZERS = Registry(
  "normalizer",
  {
    "softmax": Normalizer(
      lambda logits, key_positions, config: masked_softmax(logits)
    ),
    "entmax": Normalizer(
      lambda logits, key_positions, config: entmax(logits, config.alpha),
      has_alpha=True,
    ),
    "sparsemax": Normalizer(
      lambda logits, key_positions, config: entmax(logits, 2.0)
    ),
    "stick_breaking": Normalizer(
      lambda logits, key_positions, config: stick_breaking(
        logits, key_positions
      ),
      depends_on_order=True,
    ),
  },
  entry_check(Normalizer, "weights", "logits", "key_positions", "config"),
)
