"""Encodings of a token's index, counted from 0, or of its place
(Coordinates.place): in its embedding, or in queries and keys.

Shapes: B batch, L tokens, D features, H heads, K head size.
"""

import jax.numpy as jnp

from lengthgen_jax.attention.positions.encoding import (
  PositionEncoding,
  embedding_table,
  look_up,
  sinusoid,
)


class Sinusoidal(PositionEncoding):
  """Adds sines and cosines of a token's index to its embedding (Vaswani et al.
  2017, section 3.5)."""

  by_index = True

  def embed(self, x_BxLxD, places, noise):
    index = self.config.cyclic(places.index)
    return x_BxLxD + sinusoid(index, self.features).astype(x_BxLxD.dtype)


class Learned(PositionEncoding):
  """Adds a learned vector for every index (`cyclic_period` of them, if that is
  set)."""

  limited = "index"
  by_index = True

  def setup(self) -> None:
    rows = self.config.cyclic_period or self.config.table
    self.embedding = embedding_table(rows, self.features)

  def embed(self, x_BxLxD, places, noise):
    vectors = look_up(self.embedding, self.config.cyclic(places.index))
    return x_BxLxD + vectors.astype(x_BxLxD.dtype)


class Rope(PositionEncoding):
  """Rotates queries and keys by an angle proportional to their index (Su et al.
  2021).

  Feature i is rotated with feature i + K/2. This is done at every site, so that
  cross-attention compares the target's index with the source's.
  """

  def rotate(self, x_BxHxLxK, places):
    half = x_BxHxLxK.shape[-1] // 2
    rates = 10000.0 ** (-jnp.arange(half) / half)
    angle = places.index[..., None, :, None] * rates
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    first, second = x_BxHxLxK[..., :half], x_BxHxLxK[..., half:]
    rotated = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(rotated, axis=-1).astype(x_BxHxLxK.dtype)


class SinusoidalCoordinates(PositionEncoding):
  """Adds sinusoids of a token's place, each axis on its share of the features.

  It is ours. A digit's or item's place is its offset from the end `Task.anchor`
  of its operand. A decoder input has the place of the output that it must
  predict, counted from the left. With the index instead of the place,
  decoder-only models do not learn addition here. An axis along which a token's
  segment does not extend contributes nothing: the last digits of two operands
  on different axes would otherwise look alike.
  """

  def embed(self, x_BxLxD, places, noise):
    axes = places.place.shape[-1]
    # The features are split evenly among the axes; the last one has the rest.
    size = self.features // axes
    sizes = [size] * (axes - 1) + [self.features - size * (axes - 1)]
    extends = (places.left + places.right > 0) | (axes == 1)
    waves = [
      sinusoid(places.place[..., axis], axis_size) * extends[..., axis, None]
      for axis, axis_size in enumerate(sizes)
    ]
    return x_BxLxD + jnp.concatenate(waves, axis=-1).astype(x_BxLxD.dtype)
