"""This module encodes the index as sinusoids."""

import jax

from lengthgen_jax.attention.positions.encoding import (
  PositionEncoding,
  sinusoid,
)
from lengthgen_jax.coordinates import Places
from lengthgen_jax.rng import Noise


class Sinusoidal(PositionEncoding):
  """This encoding adds sines and cosines of a token's index.

  Vaswani et al. 2017, section 3.5.
  """

  by_index = True

  def embed(
    self, x_BxLxD: jax.Array, at: Places, noise: Noise | None
  ) -> jax.Array:
    """Adds the sinusoids of each index."""
    index = self.config.cyclic(at.index)
    return x_BxLxD + sinusoid(index, self.features).astype(x_BxLxD.dtype)
