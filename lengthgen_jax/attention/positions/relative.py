"""Biases on the distance between a key's index and a row's."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.attention.positions.encoding import PositionEncoding

BUCKETS, FARTHEST = 32, 128  # T5's own
WIDTH = 32  # of FIRE's hidden layer


def distances(rows, keys, causal: bool):
  """key's index - row's index [T, S], and how far that is: in causal attention
  how far back, elsewhere either way."""
  relative = keys.index - rows.index[:, None]
  return relative, jnp.maximum(-relative, 0) if causal else jnp.abs(relative)


class Alibi(PositionEncoding):
  """-slope · distance, slopes 2^(-8h/H) (Press et al. 2022).

  Distance is |key's index - row's index|, both counted from the left end of
  their own sequence: in self-attention the usual i - j, in cross-attention the
  gap between the output row's index and the source token's, the plain transfer
  of a definition that was made for one sequence.
  """

  additive = True

  def bias(self, rows, keys, causal):
    slopes = 2.0 ** (-8.0 * jnp.arange(1, self.heads + 1) / self.heads)
    _, distance = distances(rows, keys, causal=False)
    return (-slopes[:, None, None] * distance)[None]


class T5(PositionEncoding):
  """A learned scalar per head and bucket of key index - row index.

  Raffel et al. 2020, section 2.1: half of the buckets are single distances,
  the other half grow logarithmically up to 128, beyond which all distances
  share one. Causal sites bucket the past alone, others both directions. As
  there, all layers share one table; unlike there, cross-attention has one too
  (indices of its own sequences), because it would know no position otherwise.
  """

  additive = True

  def setup(self):
    self.table = self.param(
      "table", jax.nn.initializers.normal(1.0), (BUCKETS, self.heads)
    )

  def bias(self, rows, keys, causal):
    relative, distance = distances(rows, keys, causal)
    size = BUCKETS if causal else BUCKETS // 2
    exact = size // 2
    times = jnp.maximum(distance, 1) / exact
    share = jnp.log(times) / jnp.log(FARTHEST / exact)
    far = exact + (share * (size - exact)).astype(jnp.int32)
    bucket = jnp.where(distance < exact, distance, jnp.minimum(far, size - 1))
    if not causal:  # keys ahead have the other half
      bucket += jnp.where(relative > 0, size, 0)
    return jnp.moveaxis(self.table[bucket], -1, 0)[None]


class Fire(PositionEncoding):
  """f(ψ(distance) / ψ(max(i, L))), ψ(x) = log(c·x + 1) (Li et al. 2024).

  f is a network with one hidden layer, c > 0 and the threshold L are learned,
  and i is the longest distance that a row can have: its own index in causal
  attention. Elsewhere distances are absolute and i the greater of those to
  both ends. All layers share one f (the paper's FIRE-S).
  """

  additive = True

  def setup(self):
    self.rate = self.param("rate", nn.initializers.constant(0.1), ())
    self.threshold = self.param("threshold", nn.initializers.constant(32.0), ())
    self.hidden = nn.Dense(WIDTH)
    self.out = nn.Dense(self.heads)

  def bias(self, rows, keys, causal):
    _, distance = distances(rows, keys, causal)
    longest = rows.index[None]
    if not causal:
      longest = jnp.maximum(longest, keys.count() - 1 - longest)
    scale = jnp.abs(self.rate)
    squash = lambda x: jnp.log(scale * x + 1.0)
    whole = squash(jnp.maximum(longest, jnp.abs(self.threshold)))
    share = squash(distance) / jnp.maximum(whole[..., None], 1e-6)
    value = self.out(nn.relu(self.hidden(share[..., None])))
    return jnp.moveaxis(value, -1, 1)
