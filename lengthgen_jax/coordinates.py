"""This module says where rows and keys stand: their offsets from both ends of
their segments.

Rows are the queries of attention. A key has the coordinates of the token at its
position; a row has those of the token that it must predict.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array | np.ndarray

PAD = -1  # the segment of a position without a token


class Coordinates(NamedTuple):
  """Coordinates say where L positions stand within their segments.

  A segment is a run of tokens that belong together: an operand with the mark on
  its left, if it has one, the output, or the start token alone (in a
  decoder-only model the delimiter). Offsets are counted from both ends of the
  segment along each of A axes, so that they mean the same at every width.
  Sequences have one axis; a grid has two, its rows j and digits k. The offset
  along an axis on which a segment does not extend is 0.

  Attributes:
    segment: [B or 1, L] int32, the number of the segment; PAD where there is no
      token.
    left: [B or 1, L, A] int32, the offset from the segment's first token.
    right: [B or 1, L, A] int32, the offset from its last token.
    index: [L] int32, the position in the whole sequence; padding comes last.
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
    """Returns the number of tokens without padding, [B or 1, 1]."""
    return jnp.sum(jnp.asarray(self.segment) != PAD, axis=-1, keepdims=True)

  def index_right(self) -> jax.Array:
    """Returns each position counted from the last token, [B or 1, L]."""
    return self.num_tokens() - 1 - self.index

  def slice(self, start: int | jax.Array, size: int) -> "Coordinates":
    """Returns the coordinates of `size` positions from index `start` on, which
    may be traced."""
    return Coordinates(
      _slice(self.segment, start, size, 1),
      _slice(self.left, start, size, 1),
      _slice(self.right, start, size, 1),
      _slice(self.index, start, size, 0),
    )


def segment_coordinates(*lengths: int) -> Coordinates:
  """Returns the coordinates of consecutive segments of these lengths.

  They are for a single sequence (B = 1) with one axis (A = 1), in int64.

  >>> segment_coordinates(3, 2).right[0, :, 0]
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
  """Places are what position encodings are computed from, for L input tokens.

  The place of a digit is its offset from the least significant digit (of an
  item, in tasks that read from the left, from the first one). A prompt token
  has its own place. The inputs of the decoder, the start token and the previous
  outputs, have the place of the output that is predicted from them. So an
  output has the same place as the digits that it is computed from.

  Attributes:
    place: [B or 1, L, A] int32, the offset along each of A axes: in the prompt
      from the end `Task.anchor` of the segment, in the output from the left.
    digit: [B or 1, L] bool, False for marks that begin a segment of the prompt.
    index: [L] int32, the position in the whole sequence ([B or 1, L] if counted
      from the right).
    size: [B or 1, 1] int32, the number of tokens of the whole sequence.
    segment: [B or 1, L] int32, the number of the segment of the token that an
      input holds, for the segment embedding. The start token, the delimiter and
      padding are of the output's.
    extends: [B or 1, L, A] bool, along which axes the token's segment extends;
      None if there is one axis.
  """

  place: Array
  digit: Array
  index: Array
  size: Array
  segment: Array
  extends: Array | None = None

  def slice(self, start: int | jax.Array, size: int) -> "Places":
    """Returns `size` places from index `start` on, which may be traced.

    The field `index` must have the shape [L].
    """
    extends = self.extends
    return Places(
      _slice(self.place, start, size, 1),
      _slice(self.digit, start, size, 1),
      _slice(self.index, start, size, 0),
      self.size,
      _slice(self.segment, start, size, 1),
      None if extends is None else _slice(extends, start, size, 1),
    )


def _slice(x: Array, start: int | jax.Array, size: int, axis: int) -> jax.Array:
  return jax.lax.dynamic_slice_in_dim(jnp.asarray(x), start, size, axis)
