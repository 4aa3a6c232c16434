"""Where rows and keys stand: their offsets from both ends of their segments.

Rows are the queries of attention. A key has the coordinates of the token at its
position; a row has those of the token that it must predict.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array | np.ndarray

PAD = -1  # the segment of a position without a token


class Coordinates(NamedTuple):
  """Where L positions stand within their segments.

  A segment is a run of tokens that belong together: an operand with the mark on
  its left, if it has one, the output, or the start token alone (in a
  decoder-only model the delimiter). Offsets are counted from both ends of the
  segment along each of A axes, so that they mean the same at every width.
  Sequences have one axis; a grid has two, its rows j and digits k. The offset
  along an axis on which a segment does not extend is 0.

  Rows of attention have the coordinates of the tokens that they must say, but
  their own `index`.

  The last three fields are those of inputs alone, for position encodings. A
  prompt token has its own place. The inputs of the decoder, the start token and
  the previous outputs, have the offsets and the place of the output that is
  predicted from them, so that an output has the same place as the digits that
  it is computed from; their segment is the output's, and so is padding's.
  """

  segment: Array  # [B or 1, L] int32; PAD where there is no token
  left: Array  # [B or 1, L, A] int32, from the segment's first token
  right: Array  # [B or 1, L, A] int32, from its last token
  # [L] int32, in the whole sequence, of which padding is the end; of inputs
  # [B or 1, L] if it is counted from the right, or of a random restriction
  index: Array
  # [B or 1, L, A] int32, the offset from the end `Task.anchor` of a segment of
  # the prompt, from the left in the output
  place: Any = None
  digit: Any = None  # [B or 1, L] bool, False for Tokens.digit's marks
  size: Any = None  # [B or 1, 1] int32, tokens of the whole sequence

  @property
  def axes(self) -> int:
    """Returns A."""
    return self.left.shape[-1]

  def num_tokens(self) -> jax.Array:
    """Returns the number of tokens without padding, [B or 1, 1]."""
    return jnp.sum(jnp.asarray(self.segment) != PAD, axis=-1, keepdims=True)

  def index_right(self) -> jax.Array:
    """Returns each position counted from the last token, [B or 1, L]."""
    return self.num_tokens() - 1 - self.index

  def slice(self, start: int | jax.Array, size: int) -> "Coordinates":
    """Returns those of `size` positions from `start` on, which may be
    traced."""
    cut = lambda x: jax.lax.dynamic_slice_in_dim(
      jnp.asarray(x), start, size, axis=min(x.ndim - 1, 1)
    )
    return jax.tree.map(cut, self._replace(size=None))._replace(size=self.size)


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
