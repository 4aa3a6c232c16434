"""A bias as lines: few numbers that mean the same at every size.

A line is (row segment, key segment, anchor, M, c). It is open where, on every
axis of the key, `key's offset from its anchor = M · row's left offset + c`.
With one axis M is the papers' column step per row (ABC paper, section 5: 1
diagonal, -1 anti-diagonal, 0 vertical) for anchor LEFT, and its negative for
anchor RIGHT. Key segment WHOLE stands for all keys as one segment and for the
row's own place in its sequence: the papers' absolute lines.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.coordinates import PAD

LEFT, RIGHT = 0, 1
WHOLE = -2  # key segment: all keys as one
ANY = -1  # row segment: every row
SEGMENTS = 8  # more than any sequence has


class SiteLines(NamedTuple):
  """The lines of one attention site, padded to K per head.

  Leading axes are [R, N or 1, H] (seeds, layers, heads); functions below that
  act on one seed take [N or 1, H]. All fields are traced.

  Attributes:
    row_segment, segment, anchor: [..., K] int32.
    matrix: [..., K, A, A] int32, M by key axis and row axis.
    intercept: [..., K, A] int32, c by key axis.
    value: [..., K] float32, the bias on the line.
    valid: [..., K] bool.
    transparent: [...] bool; such a head's bias is 0 everywhere.
  """

  row_segment: jax.Array
  segment: jax.Array
  anchor: jax.Array
  matrix: jax.Array
  intercept: jax.Array
  value: jax.Array
  valid: jax.Array
  transparent: jax.Array

  @property
  def shape(self):
    """(R, N or 1, H), or without R."""
    return self.transparent.shape

  def dense(self, rows, keys):
    """The bias of one seed at any size: [N or 1, B or 1, H, T, S] float32.

    Where lines cross, the larger value counts (ABC paper, section 5: element-
    wise maximum); -inf where nothing is open. PAD keys are closed, also for
    transparent heads.
    """
    lines = SiteLines(*map(jnp.asarray, self))
    exists = (jnp.asarray(keys.segment) != PAD)[None, :, None, None, :]
    batch = max(len(rows.segment), len(keys.segment))
    size = (len(rows.index), len(keys.index))
    layers, heads = lines.shape
    closed = jnp.full((layers, batch, heads, *size), CLOSED, jnp.float32)

    def one_line(k, bias):
      line = [jax.lax.dynamic_index_in_dim(x, k, 2, False) for x in lines[:7]]
      *line, value, valid = line
      spread = lambda x: x[:, None, :, None, None]
      is_open = open_cells(*line, rows, keys) & spread(valid)
      return jnp.maximum(bias, jnp.where(is_open, spread(value), CLOSED))

    bias = jax.lax.fori_loop(0, lines.value.shape[-1], one_line, closed)
    transparent = lines.transparent[:, None, :, None, None] & exists
    return jnp.where(transparent, 0.0, bias)

  def gather(self, rows, keys):
    """The same bias as the few keys that each row sees.

    Every line has at most one key in a row. Of a transparent head only its
    lines are found: its other keys are for the caller to open.

    Args:
      rows, keys: Coordinates; the keys of a segment are consecutive, those of a
        grid row by row.

    Returns:
      values and index [N or 1, B or 1, H, T, K]; no key is open twice.
    """
    lines = SiteLines(*map(jnp.asarray, self))
    index, is_open = _keys_met(lines, rows, keys)
    value = jnp.where(is_open, lines.value[:, None, :, None, :], CLOSED)
    # Where lines cross, the larger value counts, once.
    order = jnp.arange(value.shape[-1])
    other, own = value[..., None, :], value[..., :, None]
    beaten = (other > own) | ((other == own) & (order < order[:, None]))
    met = index[..., None, :] == index[..., :, None]
    twice = (met & is_open[..., None, :] & beaten).any(axis=-1)
    return jnp.where(twice, CLOSED, value), index

  @property
  def lined(self) -> bool:
    """Whether `gather` serves."""
    return True

  def check_size(self, name: str, rows: int, keys: int) -> None:
    """Lines fit every size."""

  def leak(self):
    """The first self-attention line that shows the future; host-side.

    A line over the whole sequence at index = M·row + c leaks if it stays or
    gets ahead of its row (M 1 with a positive c, or a greater M); one over the
    output itself, whose key is the row before at c = -1, from c = 0 on.
    Verticals and anti-diagonals are ahead of the first rows only, where the
    causal term closes them, as in the statistics that they were kept by. Over
    a grid a key is ahead if it comes later row by row.

    Returns:
      None, or (seed, layer, head, row, column) of the first such cell.
    """
    step, c = np.asarray(self.matrix), np.asarray(self.intercept)
    axes = step.shape[-1]
    whole = np.asarray(self.segment) == WHOLE
    # Row by row: the first axis along which a key is not its row decides.
    same = (step * (1 - np.eye(axes, dtype=int)) == 0).all((-1, -2))
    ahead = np.zeros(whole.shape, bool)
    for axis in range(axes):
      m, shift = step[..., axis, axis], c[..., axis]
      ahead |= same & ((m > 1) | (m == 1) & (shift > 0))
      same &= (m == 1) & (shift == 0)
    ahead |= same & ~whole
    rows = np.asarray(self.row_segment)
    own = whole | (rows == ANY) | (np.asarray(self.segment) == rows)
    left = np.asarray(self.anchor) == LEFT
    future = np.asarray(self.valid) & left & own & ahead
    if not future.any():
      return None
    r, n, h, k = (int(x) for x in np.argwhere(future)[0])
    if axes > 1:
      return r, n, h, 0, int(c[r, n, h, k].max())
    m, shift = int(step[r, n, h, k, 0, 0]), int(c[r, n, h, k, 0])
    shift += 0 if whole[r, n, h, k] else 1
    row = 0
    while m * row + shift <= row:
      row += 1
    return r, n, h, row, m * row + shift


def of_seed(bias: dict, r: int) -> dict:
  """The bias of seed r, without the leading axis; one bias may serve all."""
  return jax.tree.map(lambda x: x[r if len(x) > 1 else 0], bias)


def open_cells(row_segment, segment, anchor, matrix, intercept, rows, keys):
  """Which cells [N, B or 1, H, T, S] lie on lines given by [N, H] arrays.

  PAD keys and rows lie on no line.
  """
  spread = lambda x: x[:, None, :, None, None]
  of_rows = lambda x: jnp.asarray(x)[None, :, None, :, None]
  of_keys = lambda x: jnp.asarray(x)[None, :, None, None, :]
  whole = spread(segment == WHOLE)
  name = of_keys(keys.segment)
  is_open = (name == spread(segment)) | (whole & (name != PAD))
  wanted, own = spread(row_segment), of_rows(rows.segment)
  is_open &= ((own == wanted) | (wanted == ANY)) & (own != PAD)
  from_left = spread(anchor == LEFT)
  for axis in range(rows.axes):
    target = spread(intercept[..., axis])
    for other in range(rows.axes):
      step = spread(matrix[..., axis, other])
      along = of_rows(rows.left[..., other])
      if other == 0:
        along = jnp.where(whole, of_rows(rows.index[None]), along)
      target = target + step * along
    left, right = keys.left[..., axis], keys.right[..., axis]
    offset = jnp.where(from_left, of_keys(left), of_keys(right))
    ends = keys.index[None], keys.index_right()
    if axis == 0:
      all_keys = jnp.where(from_left, *map(of_keys, ends))
      is_open &= jnp.where(whole, all_keys, offset) == target
    else:
      is_open &= whole | (offset == target)
  return is_open


def _keys_met(lines: SiteLines, rows, keys):
  """The key that each line meets in each row, and whether there is one.

  Both [N or 1, B or 1, H, T, K].
  """
  spread = lambda x: x[:, None, :, None]  # [N, 1, H, 1, K]
  whole = spread(lines.segment == WHOLE)
  from_left = spread(lines.anchor == LEFT)
  offset = _offsets(lines, rows, whole, spread)
  first, extent = _segment_starts(keys)
  batch = jnp.arange(len(first))[None, :, None, None, None]
  name = jnp.clip(spread(lines.segment), 0, SEGMENTS - 1)
  index = jnp.zeros(offset[0].shape, jnp.int32)
  for axis, wanted in enumerate(offset):
    size = extent[batch, name, axis]
    index = index * size + jnp.where(from_left, wanted, size - 1 - wanted)
  index += first[batch, name]
  last = keys.count()[None, :, None, :, None] - 1
  index = jnp.where(
    whole, jnp.where(from_left, offset[0], last - offset[0]), index
  )
  found = jnp.clip(index, 0, len(keys.index) - 1)
  at = lambda x: jnp.asarray(x)[jnp.minimum(batch, len(x) - 1), found]
  same = at(keys.segment) == jnp.where(whole, at(keys.segment), name)
  is_open = (found == index) & (at(keys.segment) != PAD) & same
  for axis, wanted in enumerate(offset):
    left, right = at(keys.left[..., axis]), at(keys.right[..., axis])
    is_open &= whole | (jnp.where(from_left, left, right) == wanted)
  row = jnp.asarray(rows.segment)[None, :, None, :, None]
  wanted = spread(lines.row_segment)
  is_open &= ((row == wanted) | (wanted == ANY)) & (row != PAD)
  return found, is_open & spread(lines.valid)


def _offsets(lines: SiteLines, rows, whole, spread) -> list:
  """M · row + c along every axis of the key, [N, B or 1, H, T, K]."""
  found = []
  of_rows = lambda x: jnp.asarray(x)[None, :, None, :, None]
  for axis in range(rows.axes):
    total = spread(lines.intercept[..., axis])
    for other in range(rows.axes):
      along = of_rows(rows.left[..., other])
      if other == 0:
        along = jnp.where(whole, of_rows(rows.index[None]), along)
      total = total + spread(lines.matrix[..., axis, other]) * along
    found.append(total)
  return found


def _segment_starts(keys):
  """First key [B or 1, SEGMENTS] of every segment, and how far it extends
  along each axis [B or 1, SEGMENTS, A]."""
  names = jnp.arange(SEGMENTS)[None, :, None]
  first = jnp.argmax(jnp.asarray(keys.segment)[:, None] == names, axis=-1)
  size = jnp.asarray(keys.left) + jnp.asarray(keys.right) + 1
  return first, jnp.take_along_axis(size, first[..., None], axis=1)
