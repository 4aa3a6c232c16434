"""Sinusoids of the index."""

from lengthgen_jax.attention.positions.encoding import (
  PositionEncoding,
  sinusoid,
)


class Sinusoidal(PositionEncoding):
  """Sines and cosines of a token's index (Vaswani et al. 2017, section 3.5)."""

  def embed(self, x_BxLxD, at, noise):
    index = self.config.cyclic(at.index)
    return x_BxLxD + sinusoid(index, self.features).astype(x_BxLxD.dtype)
