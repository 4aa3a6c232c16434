"""This module implements relative position buckets."""

import jax
import jax.numpy as jnp

from lengthgen_jax.attention.positions.encoding import PositionEncoding
from lengthgen_jax.coordinates import Coordinates

BUCKETS, FARTHEST = 32, 128  # T5's own


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
      "table", jax.nn.initializers.normal(1.0), (BUCKETS, self.heads)
    )

  def bias(
    self, rows: Coordinates, keys: Coordinates, causal: bool
  ) -> jax.Array:
    """Returns the learned bias [1, H, T, S]."""
    buckets = bucket(keys.index - rows.index[:, None], causal)
    return jnp.moveaxis(self.table[buckets], -1, 0)[None]


def bucket(relative: jax.Array, causal: bool) -> jax.Array:
  """Returns the bucket of every key index - row index."""
  size, first = BUCKETS, 0
  if not causal:
    size //= 2
    first = jnp.where(relative > 0, size, 0)
    distance = jnp.abs(relative)
  else:
    distance = jnp.maximum(-relative, 0)
  exact = size // 2
  share = jnp.log(jnp.maximum(distance, 1) / exact) / jnp.log(FARTHEST / exact)
  far_bucket = exact + (share * (size - exact)).astype(jnp.int32)
  return first + jnp.where(
    distance < exact, distance, jnp.minimum(far_bucket, size - 1)
  )
