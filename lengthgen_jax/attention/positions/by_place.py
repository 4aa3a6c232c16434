"""This module encodes places, which an output shares with the digits that it is
computed from (`Coordinates.place`)."""

from functools import reduce

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.attention.positions.encoding import (
  PositionEncoding,
  embedding_table,
  look_up,
  sinusoid,
)
from lengthgen_jax.coordinates import Coordinates
from lengthgen_jax.rng import Noise


class SinusoidalCoordinates(PositionEncoding):
  """This encoding adds sinusoids of a token's place, each axis on its share of
  the features.

  It is ours. A digit's or item's place is its offset from the end `Task.anchor`
  of its operand. A decoder input has the place of the output that it must
  predict, counted from the left. With the index instead of the place,
  decoder-only models do not learn addition here. An axis along which a token's
  segment does not extend contributes nothing: the last digits of two operands
  on different axes would otherwise look alike.
  """

  def embed(
    self, x_BxLxD: jax.Array, places: Coordinates, noise: Noise | None
  ) -> jax.Array:
    """Returns the embeddings [B, L, D] with the sinusoids of all axes."""
    axes = places.place.shape[-1]
    # The features are split evenly among the axes; the last one has the rest.
    size = self.features // axes
    sizes = [size] * (axes - 1) + [self.features - size * (axes - 1)]
    waves = [
      sinusoid(places.place[..., axis], axis_size)
      for axis, axis_size in enumerate(sizes)
    ]
    if axes > 1:
      extends = places.left + places.right > 0
      waves = [
        axis_waves * extends[..., axis, None]
        for axis, axis_waves in enumerate(waves)
      ]
    return x_BxLxD + jnp.concatenate(waves, axis=-1).astype(x_BxLxD.dtype)


class Abacus(PositionEncoding):
  """Abacus adds a learned vector for a digit's place in its number (McLeish et
  al. 2024).

  Digits of the same significance have the same vector; `$` and operators of the
  prompt have none. In training all places of an example are shifted by one
  random number, so that greater places than its own are seen. Here a decoder
  input has the place of the token that must be predicted from it, in the paper
  its own.
  """

  of_digits = True
  limited = "place"
  random_start = True
  marks = False  # whether `$` and operators of the prompt have a place too

  @nn.compact
  def embed(
    self, x_BxLxD: jax.Array, places: Coordinates, noise: Noise | None
  ) -> jax.Array:
    """Returns the embeddings [B, L, D] with the vectors of the places along
    every axis."""
    start = 0
    if noise is not None:
      limit = self.config.random_start
      start = noise.draw(lambda key: jax.random.randint(key, (1,), 0, limit))
    rows, axes = self.config.table, range(places.place.shape[-1])
    tables = [embedding_table(rows, self.features, f"axis_{i}") for i in axes]
    vectors = reduce(
      jnp.add, [look_up(tables[i], places.place[..., i] + start) for i in axes]
    )
    if not self.marks:
      vectors = jnp.where(places.digit[..., None], vectors, 0.0)
    return x_BxLxD + vectors.astype(x_BxLxD.dtype)


class Coupling(Abacus):
  """Coupling adds a learned vector for every token's place, `$` and operators
  included.

  Cho et al. 2024: digits of the same significance, and the output computed from
  them, have one position id; in training all ids of an example are shifted by
  one random number. Here a decoder input has the place of the token that must
  be predicted from it.
  """

  marks = True
