"""Encodings that add a bias to the scores, by the distance between row and key.

Shapes: B batch, H heads, T rows, S keys.
"""

import jax
import jax.numpy as jnp

from lengthgen_jax.attention.positions.encoding import PositionEncoding
from lengthgen_jax.coordinates import Array

T5_BUCKETS = 32  # as in the paper


class Alibi(PositionEncoding):
  """Adds -slope · distance, with slope 2^(-8h/H) in head h = 1...H (Press et
  al. 2022).

  Distance is |key's index - row's index|, in causal self-attention the usual i
  - j. In cross-attention, which the paper does not have, the two are indices of
  different sequences, each counted from the left.
  """

  def bias(self, rows, keys, causal):
    distance = jnp.abs(keys.index - rows.index[:, None])
    return (-self.slopes()[:, None, None] * distance)[None]

  def slopes(self) -> jax.Array:
    return 2.0 ** (-8.0 * jnp.arange(1, self.heads + 1) / self.heads)


class Nape(Alibi):
  """Gives the first half of the heads ALiBi with slopes 1, 1/2, 1/3 …, and the
  others no position (ASEntmax, Vasylenko et al. 2025)."""

  def slopes(self) -> jax.Array:
    head = jnp.arange(self.heads)
    return jnp.where(head < self.heads // 2, 1.0 / (head + 1), 0.0)


class T5(PositionEncoding):
  """Learns a scalar for each head and each bucket of key index - row index.

  Raffel et al. 2020, section 2.1: half of the buckets are single distances, the
  other half grow logarithmically up to config.max_distance, from which on all
  distances share one. Causal attention has buckets for the past alone, other
  attention for both directions. As there, all layers share one table; unlike
  there, cross-attention has one too, because it would know no position
  otherwise.
  """

  def setup(self) -> None:
    self.table = self.param(
      "table", jax.nn.initializers.normal(1.0), (T5_BUCKETS, self.heads)
    )

  def bias(self, rows, keys, causal):
    buckets = t5_bucket(
      keys.index - rows.index[:, None], self.config.max_distance, causal
    )
    return jnp.moveaxis(self.table[buckets], -1, 0)[None]


def t5_bucket(relative: Array, max_distance: int, causal: bool) -> jax.Array:
  """Returns the buckets of relative positions (the key's index - the row's
  index); if causal, all keys behind the row share that of 0."""
  if causal:
    num_buckets, first = T5_BUCKETS, 0
    distance = jnp.maximum(-relative, 0)
  else:  # half of the buckets for each direction
    num_buckets = T5_BUCKETS // 2
    first = jnp.where(relative > 0, num_buckets, 0)
    distance = jnp.abs(relative)
  num_exact = num_buckets // 2  # the buckets of single distances
  log_share = jnp.log(jnp.maximum(distance, 1) / num_exact) / jnp.log(
    max_distance / num_exact
  )
  far_bucket = num_exact + (log_share * (num_buckets - num_exact)).astype(
    jnp.int32
  )
  return first + jnp.where(
    distance < num_exact, distance, jnp.minimum(far_bucket, num_buckets - 1)
  )
