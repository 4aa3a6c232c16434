"""This module encodes the index of a token in its sequence, counted from 0.

Where config.cyclic_period is T > 0, Sinusoidal and Learned encode the index
modulo T. Shapes: B batch, L tokens, D features, H heads, K head size. The class
attributes (`limited`, `by_index`) are explained in the base class.
"""

import jax
import jax.numpy as jnp

from lengthgen_jax.attention.positions.encoding import (
  PositionEncoding,
  embedding_table,
  look_up,
  sinusoid,
)
from lengthgen_jax.coordinates import Coordinates
from lengthgen_jax.rng import Noise


class Sinusoidal(PositionEncoding):
  """This encoding adds sines and cosines of a token's index to its embedding
  (Vaswani et al. 2017, section 3.5).
  """

  by_index = True

  def embed(
    self, x_BxLxD: jax.Array, places: Coordinates, noise: Noise | None
  ) -> jax.Array:
    """Returns the embeddings [B, L, D] with the sinusoids of each index."""
    index = self.config.cyclic(places.index)
    return x_BxLxD + sinusoid(index, self.features).astype(x_BxLxD.dtype)


class Learned(PositionEncoding):
  """This encoding adds a learned vector for every index (`cyclic_period` of
  them, if that is set)."""

  limited = "index"
  by_index = True

  def setup(self) -> None:
    """Creates the table of learned vectors."""
    rows = self.config.cyclic_period or self.config.table
    self.embedding = embedding_table(rows, self.features)

  def embed(
    self, x_BxLxD: jax.Array, places: Coordinates, noise: Noise | None
  ) -> jax.Array:
    """Returns the embeddings [B, L, D] with the vector of each index."""
    vectors = look_up(self.embedding, self.config.cyclic(places.index))
    return x_BxLxD + vectors.astype(x_BxLxD.dtype)


class Rope(PositionEncoding):
  """Rope rotates queries and keys by their index (Su et al. 2021).

  Feature i is rotated with feature i + K/2. This is done at every site, so that
  cross-attention compares the target's index with the source's.
  """

  def rotate(self, x_BxHxLxK: jax.Array, places: Coordinates) -> jax.Array:
    """Returns [B, H, L, K], each pair of features rotated by an angle that is
    proportional to the index."""
    half = x_BxHxLxK.shape[-1] // 2
    rates = 10000.0 ** (-jnp.arange(half) / half)
    angle = places.index[..., None, :, None] * rates
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    first, second = x_BxHxLxK[..., :half], x_BxHxLxK[..., half:]
    rotated = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(rotated, axis=-1).astype(x_BxHxLxK.dtype)


class Randomized(PositionEncoding):
  """This encoding adds sinusoids of random positions in ascending order.

  Ruoss et al. 2023: the indices of a sequence of n tokens become n of the
  positions 0 to config.table - 1, drawn without replacement and sorted, anew
  for every batch. Outside of training the draw is always the same. The L tokens
  may be a part of the sequence, and n is the field `size` of their places.
  """

  limited = "index"

  def embed(
    self, x_BxLxD: jax.Array, places: Coordinates, noise: Noise | None
  ) -> jax.Array:
    """Returns the embeddings [B, L, D] with the sinusoids of the positions that
    were drawn."""
    key = jax.random.key(0) if noise is None else noise.key
    order = jax.random.uniform(key, (self.config.table,))
    # As many positions as the sequence has tokens, the first of a random order.
    rank = jnp.argsort(jnp.argsort(order))
    positions = jnp.arange(self.config.table)
    chosen = jnp.where(rank < places.size, positions, self.config.table)
    index = jnp.clip(jnp.atleast_2d(places.index), 0, self.config.table - 1)
    ordered = jnp.sort(chosen, axis=-1)
    position = jnp.take_along_axis(ordered, index, axis=-1)
    waves = sinusoid(position, self.features)
    return x_BxLxD + waves.astype(x_BxLxD.dtype)
