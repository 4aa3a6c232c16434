"""Position encodings, and the index transforms that run before them."""

import dataclasses

import jax.numpy as jnp

POSITIONS = ("none", "sinusoidal", "learned", "rope")
ANCHORS = ("left", "right")


@dataclasses.dataclass(frozen=True)
class PositionConfig:
  """How tokens learn where they stand.

  Attributes:
    kind: "none", "sinusoidal" (added), "learned" (added, a table), or "rope"
      (rotates queries and keys at every site, so that cross-attention compares
      the target's index with the source's).
    cyclic_period: T of cyclic position indexing (ABS paper, section 4.2):
      index i becomes i mod T before any encoding sees it; 0 turns it off.
    source_anchor: the end from which source tokens are counted. Output runs
      from the least significant digit, so only "right" keeps the phase between
      output row and input digit at every width (of the last segment; aligned
      and one-operand sources have only one).
    table: rows of the learned table.
  """

  kind: str = "none"
  cyclic_period: int = 0
  source_anchor: str = "left"
  table: int = 512

  def limit(self) -> int | None:
    """Number of positions there are; None if unlimited."""
    if self.kind == "learned" and self.cyclic_period == 0:
      return self.table
    return None


def source_index(config: PositionConfig, keys):
  """[S] position of every source key, after the index transforms."""
  absolute = keys.absolute()
  anchored = {"left": absolute.left, "right": absolute.right}
  return cyclic(anchored[config.source_anchor], config.cyclic_period)


def target_index(config: PositionConfig, row_T):
  """[T] position of every target row, after the index transforms."""
  return cyclic(row_T, config.cyclic_period)


def cyclic(index, period: int):
  """i mod T; the identity for T = 0."""
  return index % period if period else index


def sinusoid(index_T, features: int):
  """[T, D] sines and cosines (Vaswani et al. 2017, section 3.5)."""
  rates = 10000.0 ** (-jnp.arange(0, features, 2) / features)
  angle = index_T[:, None] * rates
  return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1)[:, :features]


def rotate(x_BxTxHxK, index_T):
  """Rotary encoding of a query or key (Su et al. 2021, half-split pairs)."""
  half = x_BxTxHxK.shape[-1] // 2
  rates = 10000.0 ** (-jnp.arange(half) / half)
  angle = index_T[:, None, None] * rates
  sin, cos = jnp.sin(angle), jnp.cos(angle)
  first, second = x_BxTxHxK[..., :half], x_BxTxHxK[..., half:]
  rotated = [first * cos - second * sin, second * cos + first * sin]
  return jnp.concatenate(rotated, axis=-1).astype(x_BxTxHxK.dtype)
