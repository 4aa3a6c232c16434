"""Rotary encoding."""

import jax.numpy as jnp

from lengthgen_jax.attention.positions.encoding import PositionEncoding


class Rope(PositionEncoding):
  """Queries and keys turned by their index (Su et al. 2021, half-split pairs).

  At every site, so that cross-attention compares the target's index with the
  source's.
  """

  def rotate(self, x_BxHxLxK, at):
    half = x_BxHxLxK.shape[-1] // 2
    rates = 10000.0 ** (-jnp.arange(half) / half)
    angle = self.config.cyclic(at.index)[..., None, :, None] * rates
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    first, second = x_BxHxLxK[..., :half], x_BxHxLxK[..., half:]
    turned = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(turned, axis=-1).astype(x_BxHxLxK.dtype)
