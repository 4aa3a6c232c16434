"""The base class of position encodings, and what several of them use."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax import sections
from lengthgen_jax.coordinates import Array, Coordinates
from lengthgen_jax.rng import Noise


class PositionConfig(sections.Positions):
  """How positions are encoded."""

  @property
  def placeless(self) -> bool:
    """Whether inputs have no position, or an index modulo T alone; False for
    all encodings that users register."""
    by_index = self.kind in ("sinusoidal", "learned")
    return self.kind == "none" or by_index and self.cyclic_period > 0

  def cyclic(self, index: Array) -> Array:
    """Returns i mod T, and the index itself for T = 0."""
    return index % self.cyclic_period if self.cyclic_period else index


class PositionEncoding(nn.Module):
  """The base class, whose own methods encode nothing.

  A model has an instance for each attention site, whose `bias` it adds there.
  That of "self" also encodes the decoder's inputs and rotates the decoder's
  queries and its keys of self-attention; that of "cross" does the same for the
  source. Shapes: B batch, L inputs, D features, H heads, K head size, A axes, T
  rows and S keys of attention.
  """

  config: PositionConfig
  features: int  # D, the model size
  heads: int  # H

  additive: ClassVar[bool] = False  # whether the class has a `bias`
  # whether only tasks on numbers have the places that it encodes
  of_digits: ClassVar[bool] = False
  # "index" or "place" if that must be below config.table
  limited: ClassVar[str] = ""
  # whether it encodes config.cyclic(index), so that positions.cyclic_period has
  # an effect
  by_index: ClassVar[bool] = False
  # whether places are shifted by a random number in training
  random_start: ClassVar[bool] = False

  def __init_subclass__(cls, **keywords: Any) -> None:
    super().__init_subclass__(**keywords)
    cls.additive = cls.bias is not PositionEncoding.bias

  def embed(
    self, x_BxLxD: jax.Array, places: Coordinates, noise: Noise | None
  ) -> jax.Array:
    """Returns the inputs [B, L, D] with their positions encoded.

    `noise` is what random positions are drawn from in training, the same for
    the encoder and the decoder.
    """
    return x_BxLxD

  def rotate(self, x_BxHxLxK: jax.Array, places: Coordinates) -> jax.Array:
    """Returns queries or keys with their positions encoded."""
    return x_BxHxLxK

  def bias(
    self, rows: Coordinates, keys: Coordinates, causal: bool
  ) -> jax.Array:
    """Returns a bias [B or 1, H, T, S] to add to the scores, in classes that
    define it.

    `rows.index` is the position of the row itself; the other fields of `rows`
    are those of the token that it predicts. `causal`: this is self-attention of
    the decoder, in which a row sees no later keys (bias.allow_leak is refused
    with an additive encoding).
    """
    raise NotImplementedError


def sinusoid(index_L: Array, features: int) -> jax.Array:
  """Returns sines and cosines [..., L, D] of positions [..., L] (Vaswani et al.
  2017, section 3.5), concatenated and not interleaved."""
  frequencies = 10000.0 ** (-jnp.arange(0, features, 2) / features)
  angle = index_L[..., None] * frequencies
  waves = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1)
  return waves[..., :features]


def embedding_table(
  rows: int, features: int, name: str | None = None
) -> nn.Embed:
  return nn.Embed(
    rows, features, embedding_init=jax.nn.initializers.normal(0.02), name=name
  )


def look_up(embedding: nn.Embed, index: Array) -> jax.Array:
  """Returns the table's vectors [..., L, D] at an index [..., L].

  An index outside of the table, which padding may have, gets the nearest row.
  Flax would return NaN beyond the last one, and NaN times an attention weight
  of zero is NaN.
  """
  return embedding(jnp.clip(index, 0, embedding.num_embeddings - 1))
