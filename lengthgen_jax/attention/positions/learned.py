"""A learned table of the index."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.attention.positions.encoding import PositionEncoding


def table(rows: int, features: int, name: str | None = None) -> nn.Embed:
  return nn.Embed(
    rows, features, embedding_init=jax.nn.initializers.normal(0.02), name=name
  )


def look_up(embedding: nn.Embed, index):
  """Vectors of places; PAD beyond the table has one too, because NaN times a
  weight of zero is NaN."""
  return embedding(jnp.clip(index, 0, embedding.num_embeddings - 1))


class Learned(PositionEncoding):
  """A vector for every index, T of them if the index is cyclic."""

  limited = "index"

  def setup(self):
    rows = self.config.cyclic_period or self.config.table
    self.embedding = table(rows, self.features)

  def embed(self, x_BxLxD, at, noise):
    found = look_up(self.embedding, self.config.cyclic(at.index))
    return x_BxLxD + found.astype(x_BxLxD.dtype)
