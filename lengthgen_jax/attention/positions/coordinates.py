"""This module encodes places, which an output and its digits share, as
sinusoids."""

import jax
import jax.numpy as jnp

from lengthgen_jax.attention.positions.encoding import (
  PositionEncoding,
  sinusoid,
)
from lengthgen_jax.coordinates import Places
from lengthgen_jax.rng import Noise


class SinusoidalCoordinates(PositionEncoding):
  """This encoding adds sinusoids of a token's place, each axis on its share of
  features.

  Ours: a digit's place is its offset from its operand's right end, a row's the
  offset of the output that it must produce. With the absolute index in their
  stead decoder-only models do not learn addition here. An axis along which a
  token's segment does not extend contributes nothing: the last digits of two
  operands on different axes would otherwise look alike.
  """

  def embed(
    self, x_BxLxD: jax.Array, at: Places, noise: Noise | None
  ) -> jax.Array:
    """Adds the sinusoids of all axes to the token embeddings."""
    axes = at.place.shape[-1]
    share = self.features // axes
    sizes = [share] * (axes - 1) + [self.features - share * (axes - 1)]
    waves = [sinusoid(at.place[..., i], size) for i, size in enumerate(sizes)]
    if at.extends is not None:
      waves = [x * at.extends[..., i, None] for i, x in enumerate(waves)]
    return x_BxLxD + jnp.concatenate(waves, axis=-1).astype(x_BxLxD.dtype)
