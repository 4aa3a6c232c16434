"""This module implements rotary position encoding."""

import jax
import jax.numpy as jnp

from lengthgen_jax.attention.positions.encoding import PositionEncoding
from lengthgen_jax.coordinates import Places


class Rope(PositionEncoding):
  """Rope rotates queries and keys by their index (Su et al. 2021, half-split
  pairs).

  It does so at every site, so that cross-attention compares the target's index
  with the source's.
  """

  def rotate(self, x_BxHxLxK: jax.Array, at: Places) -> jax.Array:
    """Rotates each pair of features by an angle proportional to the index."""
    half = x_BxHxLxK.shape[-1] // 2
    rates = 10000.0 ** (-jnp.arange(half) / half)
    angle = self.config.cyclic(at.index)[..., None, :, None] * rates
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    first, second = x_BxHxLxK[..., :half], x_BxHxLxK[..., half:]
    rotated = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(rotated, axis=-1).astype(x_BxHxLxK.dtype)
