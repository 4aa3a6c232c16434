"""Coordinates of rows and keys: offsets from both ends of their segments.

A key's coordinates are those of the token it holds, a row's are those of the
token it must say.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array | np.ndarray

PAD = -1  # the segment of a place that holds no token


class Coordinates(NamedTuple):
  """Coordinates say where L places stand in their segments.

  A segment is a run of tokens that belong together (an operand and the token on
  its left, the output, the start token alone). Along each of A axes offsets are
  counted from both of its ends, so that a place relative to an operand means
  the same at every width. Sequences have one axis; a grid (row j, digit k) two.
  An axis along which a segment does not extend has offset 0.

  Attributes:
    segment: [B or 1, L] int32; PAD where there is no token.
    left: [B or 1, L, A] int32, offsets from the segment's first token.
    right: [B or 1, L, A] int32, offsets from its last token.
    index: [L] int32, place in the whole sequence; PAD stands behind the rest.
  """

  segment: Array
  left: Array
  right: Array
  index: Array

  @property
  def axes(self) -> int:
    """Returns the number A of axes."""
    return self.left.shape[-1]

  def num_tokens(self) -> jax.Array:
    """Returns how many places hold a token, [B or 1, 1]."""
    return jnp.sum(jnp.asarray(self.segment) != PAD, axis=-1, keepdims=True)

  def index_right(self) -> jax.Array:
    """Returns each place's index counted from the last token, [B or 1, L]."""
    return self.num_tokens() - 1 - self.index

  def slice(self, start: int | jax.Array, size: int) -> "Coordinates":
    """Returns the coordinates of `size` places from `start`, which may be
    traced."""
    return Coordinates(
      _slice(self.segment, start, size, 1),
      _slice(self.left, start, size, 1),
      _slice(self.right, start, size, 1),
      _slice(self.index, start, size, 0),
    )


def segments(*lengths: int) -> Coordinates:
  """Returns coordinates [1, L] of consecutive segments with one axis.

  >>> segments(3, 2).right[0, :, 0]
  array([2, 1, 0, 1, 0])
  """
  left = np.concatenate([np.arange(n) for n in lengths])
  right = np.concatenate([np.arange(n)[::-1] for n in lengths])
  segment = np.repeat(np.arange(len(lengths)), lengths)
  return Coordinates(
    segment=segment[None],
    left=left[None, :, None],
    right=right[None, :, None],
    index=np.arange(len(segment)),
  )


class Places(NamedTuple):
  """Places say where L inputs stand, for a position encoding.

  An input of the output's part (and the start token) has the place of the token
  that its row must say, any other the place of the token it holds: so an output
  and the digits it is made of have the same place.

  Attributes:
    place: [B or 1, L, A] int32, the offset along each axis: of operands from
      the right end (least significant digit), of the output from the left.
    digit: [B or 1, L] bool, whether that token is more than a mark between
      segments.
    index: [L] int32, place in the whole sequence ([1, L] if counted from the
      right).
    size: [B or 1, 1] int32, tokens of the whole sequence.
    extends: [B or 1, L, A] bool, along which axes the token's segment extends;
      None where there is one axis.
  """

  place: Array
  digit: Array
  index: Array
  size: Array
  extends: Array | None = None

  def slice(self, start: int | jax.Array, size: int) -> "Places":
    """Returns `size` places from `start`, which may be traced; `index` must be
    [L]."""
    extends = self.extends
    return Places(
      _slice(self.place, start, size, 1),
      _slice(self.digit, start, size, 1),
      _slice(self.index, start, size, 0),
      self.size,
      None if extends is None else _slice(extends, start, size, 1),
    )


def _slice(x: Array, start: int | jax.Array, size: int, axis: int) -> jax.Array:
  return jax.lax.dynamic_slice_in_dim(jnp.asarray(x), start, size, axis)
