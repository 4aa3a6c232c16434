"""Learned tables: of the index, or of the place in a number."""

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

  def embed(self, x_BxLxD, at, key):
    found = look_up(self.embedding, self.config.cyclic(at.index))
    return x_BxLxD + found.astype(x_BxLxD.dtype)


class Abacus(PositionEncoding):
  """A vector for a digit's place in its number (McLeish et al. 2024).

  The same for digits of the same significance; tokens that are no digits have
  none. In training all places of an example start at one random number, so
  that greater places than its own are seen. Here a row bears the place of the
  digit that it must say, in the paper that of the digit it holds.
  """

  of_digits = True
  limited = "place"
  random = True
  marks = False  # whether tokens that are no digits have a place too

  @nn.compact
  def embed(self, x_BxLxD, at, key):
    start = 0
    if key is not None:
      shape = (len(x_BxLxD), 1)
      start = jax.random.randint(key, shape, 0, self.config.random_start)
    found = 0.0
    for axis in range(at.place.shape[-1]):
      embedding = table(self.config.table, self.features, f"axis_{axis}")
      found += look_up(embedding, at.place[..., axis] + start)
    if not self.marks:
      found = jnp.where(at.digit[..., None], found, 0.0)
    return x_BxLxD + found.astype(x_BxLxD.dtype)


class Coupling(Abacus):
  """A vector for every place, operators and end tokens included.

  Cho et al. 2024: digits of the same significance, and the output made of
  them, have one position id; ids of an example start at one random number in
  training. Here a row bears the place of the digit that it must say.
  """

  marks = True
