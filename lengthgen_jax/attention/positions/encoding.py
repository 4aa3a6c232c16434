"""This module defines what a position encoding is, and what several of them
use."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.coordinates import Array, Coordinates, Places
from lengthgen_jax.rng import Noise

ANCHORS = ("left", "right")


@dataclasses.dataclass(frozen=True)
class PositionConfig:
  """This class says how tokens learn where they stand.

  Attributes:
    kind: a name in POSITIONS.
    cyclic_period: T of cyclic position indexing (ABS paper, section 4.2): index
      i becomes i mod T before an encoding of the index sees it; 0 turns it off.
    source_anchor: the end from which source tokens are counted. Output runs
      from the least significant digit, so only "right" keeps the phase between
      output row and input digit at every width (of the last segment; aligned
      and one-operand sources have only one).
    table: rows of a learned table, or how many positions there are to draw from
      (randomized).
    random_start: learned places count from a number drawn below this in
      training and from 0 in tests, so that a longer input's places have been
      seen (abacus, coupling).
  """

  kind: str = "none"
  cyclic_period: int = 0
  source_anchor: str = "left"
  table: int = 512
  random_start: int = 100

  @property
  def placeless(self) -> bool:
    """Tells whether inputs carry no position, or none but an index mod T."""
    by_index = self.kind in ("sinusoidal", "learned")
    return self.kind == "none" or by_index and self.cyclic_period > 0

  def cyclic(self, index: Array) -> Array:
    """Returns i mod T, and the index itself for T = 0."""
    return index % self.cyclic_period if self.cyclic_period else index


class PositionEncoding(nn.Module):
  """The base class encodes no position: every hook changes nothing.

  One instance serves one attention site ("self" and the target's embedding,
  "cross" and the source's, "encoder").

  Attributes:
    config: the encoding's fields.
    features: D.
    heads: H.
    additive: whether `bias` returns a bias, which is then on every pair.
    of_digits: whether places must be those of digits in numbers.
    limited: what the table limits: "index", "place" or nothing ("").
    by_index: whether a cyclic index (config.cyclic) is what it encodes.
    random_start: whether places count from a random start in training.
  """

  config: PositionConfig
  features: int
  heads: int

  additive: ClassVar[bool] = False
  of_digits: ClassVar[bool] = False
  limited: ClassVar[str] = ""
  by_index: ClassVar[bool] = False
  random_start: ClassVar[bool] = False

  def embed(
    self, x_BxLxD: jax.Array, at: Places, noise: Noise | None
  ) -> jax.Array:
    """Returns the inputs with their positions encoded.

    Args:
      x_BxLxD: token embeddings.
      at: Places of the L inputs.
      noise: rng.Noise in training, None in tests; both sides of an
        encoder-decoder get the same.
    """
    return x_BxLxD

  def rotate(self, x_BxHxLxK: jax.Array, at: Places) -> jax.Array:
    """Returns queries or keys with their positions encoded."""
    return x_BxHxLxK

  def bias(
    self, rows: Coordinates, keys: Coordinates, causal: bool
  ) -> jax.Array | None:
    """Returns [B or 1, H, T, S] to add to the scores, None if there is
    nothing."""
    return None


def sinusoid(index_L: Array, features: int) -> jax.Array:
  """Returns sines and cosines [..., L, D] (Vaswani et al. 2017, section
  3.5)."""
  rates = 10000.0 ** (-jnp.arange(0, features, 2) / features)
  angle = index_L[..., None] * rates
  waves = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1)
  return waves[..., :features]


def embedding_table(
  rows: int, features: int, name: str | None = None
) -> nn.Embed:
  """Returns a table of learned vectors [rows, D]."""
  return nn.Embed(
    rows, features, embedding_init=jax.nn.initializers.normal(0.02), name=name
  )


def look_up(embedding: nn.Embed, index: Array) -> jax.Array:
  """Returns the table's vectors [..., L, D] at an index [..., L].

  PAD beyond the table gets one too, because NaN times a weight of zero is NaN.
  """
  return embedding(jnp.clip(index, 0, embedding.num_embeddings - 1))
