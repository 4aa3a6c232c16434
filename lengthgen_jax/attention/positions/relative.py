"""This module has the position encodings that add a bias to the scores, by the
distance between row and key.

Shapes: B batch, H heads, T rows, S keys.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.attention.positions.encoding import PositionEncoding
from lengthgen_jax.coordinates import Array, Coordinates

T5_BUCKETS, T5_FARTHEST = 32, 128  # as in the paper
FIRE_WIDTH = 32  # features of FIRE's hidden layer


class Alibi(PositionEncoding):
  """Alibi adds -slope · distance, with slope 2^(-8h/H) in head h = 1...H (Press
  et al. 2022).

  Distance is |key's index - row's index|, in causal self-attention the usual i
  - j. In cross-attention, which the paper does not have, the two are indices of
  different sequences, each counted from the left.
  """

  additive = True

  def bias(
    self, rows: Coordinates, keys: Coordinates, causal: bool
  ) -> jax.Array:
    """Returns the linear bias [1, H, T, S]."""
    distance = jnp.abs(keys.index - rows.index[:, None])
    return (-self.slopes()[:, None, None] * distance)[None]

  def slopes(self) -> jax.Array:
    """Returns the slope of every head, [H]."""
    return 2.0 ** (-8.0 * jnp.arange(1, self.heads + 1) / self.heads)


class Nape(Alibi):
  """Nape gives the first half of the heads ALiBi with slopes 1, 1/2, 1/3 …, and
  the others no position (ASEntmax, Vasylenko et al. 2025)."""

  def slopes(self) -> jax.Array:
    """Returns the slope of every head, [H], 0 for the second half."""
    head = jnp.arange(self.heads)
    return jnp.where(head < self.heads // 2, 1.0 / (head + 1), 0.0)


class T5(PositionEncoding):
  """T5 learns a scalar for each head and each bucket of key index - row index.

  Raffel et al. 2020, section 2.1: half of the buckets are single distances, the
  other half grow logarithmically up to T5_FARTHEST, from which on all distances
  share one. Causal attention has buckets for the past alone, other attention
  for both directions. As there, all layers share one table; unlike there,
  cross-attention has one too, because it would know no position otherwise.
  """

  additive = True

  def setup(self) -> None:
    """Creates the table of scalars, [T5_BUCKETS, H]."""
    self.table = self.param(
      "table", jax.nn.initializers.normal(1.0), (T5_BUCKETS, self.heads)
    )

  def bias(
    self, rows: Coordinates, keys: Coordinates, causal: bool
  ) -> jax.Array:
    """Returns the learned bias [1, H, T, S]."""
    buckets = t5_bucket(keys.index - rows.index[:, None], causal)
    return jnp.moveaxis(self.table[buckets], -1, 0)[None]


def t5_bucket(relative: Array, causal: bool) -> jax.Array:
  """Returns the buckets [...] int32 of relative positions.

  Args:
    relative: [...] int, the key's index - the row's index.
    causal: whether all keys with relative > 0 share the bucket of relative 0.
  """
  if causal:
    num_buckets, first = T5_BUCKETS, 0
    distance = jnp.maximum(-relative, 0)
  else:  # half of the buckets for each direction
    num_buckets = T5_BUCKETS // 2
    first = jnp.where(relative > 0, num_buckets, 0)
    distance = jnp.abs(relative)
  num_exact = num_buckets // 2  # the buckets of single distances
  log_share = jnp.log(jnp.maximum(distance, 1) / num_exact) / jnp.log(
    T5_FARTHEST / num_exact
  )
  far_bucket = num_exact + (log_share * (num_buckets - num_exact)).astype(
    jnp.int32
  )
  return first + jnp.where(
    distance < num_exact, distance, jnp.minimum(far_bucket, num_buckets - 1)
  )


class Fire(PositionEncoding):
  """Fire adds f(ψ(distance) / ψ(max(i, L))), ψ(x) = log(|c|·x + 1) (Li et al.
  2024).

  f is a network with one hidden layer, c and the threshold L are learned (of L
  the absolute value counts), and i is the longest distance that a row can have:
  its own index in causal attention. Elsewhere distances count in both
  directions, and i is the distance to the farther end of the keys. All layers
  share one f (the paper's FIRE-S).
  """

  additive = True

  def setup(self) -> None:
    """Creates c (`rate`), L (`threshold`) and the two layers of f."""
    self.rate = self.param("rate", nn.initializers.constant(0.1), ())
    self.threshold = self.param("threshold", nn.initializers.constant(32.0), ())
    # Accelerators round the factors of products by default, and a rounded
    # distance is that of another key.
    self.hidden = nn.Dense(FIRE_WIDTH, precision="highest")
    self.out = nn.Dense(self.heads, precision="highest")

  def bias(
    self, rows: Coordinates, keys: Coordinates, causal: bool
  ) -> jax.Array:
    """Returns the learned bias [B or 1, H, T, S]."""
    relative = keys.index - rows.index[:, None]
    distance = jnp.maximum(-relative, 0) if causal else jnp.abs(relative)
    longest = rows.index[None]
    if not causal:
      longest = jnp.maximum(longest, keys.num_tokens() - 1 - longest)
    scale = jnp.abs(self.rate)
    psi = lambda x: jnp.log(scale * x + 1.0)
    psi_longest = psi(jnp.maximum(longest, jnp.abs(self.threshold)))
    ratio = psi(distance) / jnp.maximum(psi_longest[..., None], 1e-6)
    bias = self.out(nn.relu(self.hidden(ratio[..., None])))
    return jnp.moveaxis(bias, -1, 1)
