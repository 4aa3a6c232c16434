"""This module learns a table of the place in a number, with a random start."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.attention.positions.encoding import PositionEncoding
from lengthgen_jax.attention.positions.learned import look_up, table
from lengthgen_jax.coordinates import Places
from lengthgen_jax.rng import Noise


class Abacus(PositionEncoding):
  """Abacus adds a vector for a digit's place in its number (McLeish et al.
  2024).

  Digits of the same significance have the same vector; tokens that are no
  digits have none. In training all places of an example start at one random
  number, so that greater places than its own are seen. Here a row bears the
  place of the digit that it must output, in the paper that of the digit it
  holds.
  """

  of_digits = True
  limited = "place"
  random = True
  random_start = True
  marks = False  # whether tokens that are no digits have a place too

  @nn.compact
  def embed(
    self, x_BxLxD: jax.Array, at: Places, noise: Noise | None
  ) -> jax.Array:
    """Adds the learned vectors of the places along every axis."""
    start = 0
    if noise is not None:
      limit = self.config.random_start
      start = noise.draw(lambda key: jax.random.randint(key, (1,), 0, limit))
    vectors = 0.0
    for axis in range(at.place.shape[-1]):
      embedding = table(self.config.table, self.features, f"axis_{axis}")
      vectors += look_up(embedding, at.place[..., axis] + start)
    if not self.marks:
      vectors = jnp.where(at.digit[..., None], vectors, 0.0)
    return x_BxLxD + vectors.astype(x_BxLxD.dtype)
