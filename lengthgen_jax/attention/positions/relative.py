"""This module adds biases that depend on the distance of key and row."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.attention.positions.encoding import PositionEncoding
from lengthgen_jax.coordinates import Array, Coordinates

T5_BUCKETS, T5_FARTHEST = 32, 128  # the paper's own
FIRE_WIDTH = 32  # of the hidden layer


class Alibi(PositionEncoding):
  """Alibi adds -slope · distance with slopes 2^(-8h/H) (Press et al. 2022).

  Distance is |key's index - row's index|, both counted from the left end of
  their own sequence. In self-attention that is the usual i - j. In
  cross-attention it is the gap between the output row's index and the source
  token's, the plain transfer of a definition that was made for one sequence.
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
  """Nape gives half of the heads ALiBi with slopes 1/1, 1/2, 1/3 …, and the
  others no position (ASEntmax, Vasylenko et al. 2025)."""

  def slopes(self) -> jax.Array:
    """Returns the slope of every head, [H], 0 for the second half."""
    head = jnp.arange(self.heads)
    return jnp.where(head < self.heads // 2, 1.0 / (head + 1), 0.0)


class T5(PositionEncoding):
  """T5 learns a scalar per head and bucket of key index - row index.

  Raffel et al. 2020, section 2.1: half of the buckets are single distances, the
  other half grow logarithmically up to 128, beyond which all distances share
  one. Causal sites bucket the past alone, others both directions. As there, all
  layers share one table; unlike there, cross-attention has one too (indices of
  its own sequences), because it would know no position otherwise.
  """

  additive = True

  def setup(self) -> None:
    """Creates the table of scalars."""
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
  """Returns the bucket of every key index - row index."""
  size, first = T5_BUCKETS, 0
  if not causal:
    size //= 2
    first = jnp.where(relative > 0, size, 0)
    distance = jnp.abs(relative)
  else:
    distance = jnp.maximum(-relative, 0)
  exact = size // 2
  share = jnp.log(jnp.maximum(distance, 1) / exact) / jnp.log(
    T5_FARTHEST / exact
  )
  far_bucket = exact + (share * (size - exact)).astype(jnp.int32)
  return first + jnp.where(
    distance < exact, distance, jnp.minimum(far_bucket, size - 1)
  )


class Fire(PositionEncoding):
  """Fire adds f(ψ(distance) / ψ(max(i, L))), ψ(x) = log(c·x + 1) (Li et al.
  2024).

  f is a network with one hidden layer, c > 0 and the threshold L are learned,
  and i is the longest distance that a row can have: its own index in causal
  attention. Elsewhere distances are absolute and i is the greater of those to
  both ends. All layers share one f (the paper's FIRE-S).
  """

  additive = True

  def setup(self) -> None:
    """Creates c, L and the two layers of f."""
    self.rate = self.param("rate", nn.initializers.constant(0.1), ())
    self.threshold = self.param("threshold", nn.initializers.constant(32.0), ())
    # Products are exact on every device: a rounded place is another place.
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
    share = psi(distance) / jnp.maximum(psi_longest[..., None], 1e-6)
    value = self.out(nn.relu(self.hidden(share[..., None])))
    return jnp.moveaxis(value, -1, 1)
