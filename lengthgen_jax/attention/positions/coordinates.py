"""Sinusoids of places, which are the same for an output and its digits."""

import jax.numpy as jnp

from lengthgen_jax.attention.positions.encoding import (
  PositionEncoding,
  sinusoid,
)


class SinusoidalCoordinates(PositionEncoding):
  """Sines and cosines of a token's place, each axis on its share of features.

  Ours: a digit's place is its offset from its operand's right end, a row's the
  offset of the output that it must say. With the absolute index in their stead
  decoder-only models do not learn addition here. Of an axis along which a
  token's segment does not extend it is told nothing: the last digits of two
  operands on different axes would otherwise be one set.
  """

  def embed(self, x_BxLxD, at, noise):
    axes = at.place.shape[-1]
    share = self.features // axes
    sizes = [share] * (axes - 1) + [self.features - share * (axes - 1)]
    waves = [sinusoid(at.place[..., i], size) for i, size in enumerate(sizes)]
    if at.extends is not None:
      waves = [x * at.extends[..., i, None] for i, x in enumerate(waves)]
    return x_BxLxD + jnp.concatenate(waves, axis=-1).astype(x_BxLxD.dtype)
