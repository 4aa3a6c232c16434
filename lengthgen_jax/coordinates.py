"""Where keys stand: offsets inside segments, shared by tasks and biases."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array | np.ndarray

UNKNOWN = -(1 << 30)  # an offset that no line meets


class Coordinates(NamedTuple):
  """Where each of S keys stands inside its segment.

  A segment is a run of keys that belong together (an operand and the token on
  its left, or a whole sequence); offsets are counted from both of its ends, so
  a position relative to an operand means the same at every width.

  Attributes:
    segment: [S] int32, index of the segment; -1 marks PAD.
    left: [S] int32, offset from the segment's first key.
    right: [S] int32, offset from the segment's last key.
  """

  segment: Array
  left: Array
  right: Array

  def absolute(self) -> "Coordinates":
    """The same keys as one segment (the papers' absolute positions)."""
    valid = self.segment >= 0
    left = jnp.cumsum(valid) - 1
    return Coordinates(
      segment=jnp.where(valid, 0, -1),
      left=left,
      right=jnp.sum(valid) - 1 - left,
    )


def segments(*lengths: int) -> Coordinates:
  """Coordinates of consecutive segments of the given lengths.

  >>> segments(3, 2).right
  array([2, 1, 0, 1, 0], dtype=int32)
  """
  left = np.concatenate([np.arange(n) for n in lengths])
  right = np.concatenate([np.arange(n)[::-1] for n in lengths])
  segment = np.repeat(np.arange(len(lengths)), lengths)
  return Coordinates(*(x.astype(np.int32) for x in (segment, left, right)))


def target(rows: Array) -> Coordinates:
  """Coordinates of decoder inputs; their end is unknown while decoding."""
  return Coordinates(
    segment=jnp.zeros_like(rows),
    left=rows,
    right=jnp.full_like(rows, UNKNOWN),
  )


def pad(keys: Coordinates, length: int) -> Coordinates:
  """The same keys followed by PAD up to `length` keys."""
  return Coordinates(
    *(
      np.pad(x, (0, length - len(x)), constant_values=fill)
      for x, fill in zip(keys, (-1, UNKNOWN, UNKNOWN), strict=True)
    )
  )
