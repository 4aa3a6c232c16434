"""This module learns a table of the index."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.attention.positions.encoding import PositionEncoding
from lengthgen_jax.coordinates import Places
from lengthgen_jax.rng import Noise


def table(rows: int, features: int, name: str | None = None) -> nn.Embed:
  """Returns a table of learned vectors, one for each row."""
  return nn.Embed(
    rows, features, embedding_init=jax.nn.initializers.normal(0.02), name=name
  )


def look_up(embedding: nn.Embed, index: jax.Array) -> jax.Array:
  """Returns the vectors of places.

  PAD beyond the table gets one too, because NaN times a weight of zero is NaN.
  """
  return embedding(jnp.clip(index, 0, embedding.num_embeddings - 1))


class Learned(PositionEncoding):
  """This encoding adds a vector for every index, T of them if the index is
  cyclic."""

  limited = "index"
  by_index = True

  def setup(self) -> None:
    """Creates the table."""
    rows = self.config.cyclic_period or self.config.table
    self.embedding = table(rows, self.features)

  def embed(
    self, x_BxLxD: jax.Array, at: Places, noise: Noise | None
  ) -> jax.Array:
    """Adds the learned vector of each index."""
    vectors = look_up(self.embedding, self.config.cyclic(at.index))
    return x_BxLxD + vectors.astype(x_BxLxD.dtype)
