"""This module holds biases as lines: few numbers that mean the same at every
size.

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
from lengthgen_jax.coordinates import PAD, Coordinates

LEFT, RIGHT = 0, 1
WHOLE = -2  # key segment: all keys as one
ANY = -1  # row segment: every row
SEGMENTS = 8  # more than any sequence has


class SiteLines(NamedTuple):
  """SiteLines holds the lines of one attention site, padded to K per head.

  Leading axes are [R, N or 1, H] (seeds, layers, heads); the methods and
  functions below that act on one seed take [N or 1, H]. All fields are traced.

  Attributes:
    row_segment, segment, anchor: [..., K] int32.
    matrix: [..., K, A, A] int32, M by key axis and row axis.
    intercept: [..., K, A] int32, c by key axis.
    value: [..., K] float32, the bias on the line.
    valid: [..., K] bool, False where an entry is padding.
    transparent: [...] bool; such a head's bias is 0 everywhere.
    lined: whether `gather` may be used.
  """

  row_segment: jax.Array
  segment: jax.Array
  anchor: jax.Array
  matrix: jax.Array
  intercept: jax.Array
  value: jax.Array
  valid: jax.Array
  transparent: jax.Array
  lined = True

  @property
  def shape(self) -> tuple[int, ...]:
    """Returns the leading axes, (R, N or 1, H), or the same without R."""
    return self.transparent.shape

  def dense(self, rows: Coordinates, keys: Coordinates) -> jax.Array:
    """Returns the bias of one seed at any size, [N or 1, B or 1, H, T, S]
    float32.

    Where lines cross, the larger value counts (ABC paper, section 5); -inf
    where nothing is open. PAD keys are closed, also for transparent heads.
    """
    lines = SiteLines(*map(jnp.asarray, self))
    batch = max(len(rows.segment), len(keys.segment))
    sizes = len(rows.index), len(keys.index)
    shape = (lines.shape[0], batch, lines.shape[1], *sizes)

    def one_line(k, bias):
      cut = lambda x: jax.lax.dynamic_slice_in_dim(x, k, 1, axis=2)
      line = jax.tree.map(cut, lines._replace(transparent=None))
      is_open = open_cells(line, rows, keys) & _spread(line.valid)
      return jnp.maximum(bias, jnp.where(is_open, _spread(line.value), CLOSED))

    closed = jnp.full(shape, CLOSED, jnp.float32)
    bias = jax.lax.fori_loop(0, lines.value.shape[-1], one_line, closed)
    exists = (jnp.asarray(keys.segment) != PAD)[None, :, None, None]
    return jnp.where(_spread(lines.transparent[..., None]) & exists, 0.0, bias)

  def gather(
    self, rows: Coordinates, keys: Coordinates
  ) -> tuple[jax.Array, jax.Array]:
    """Returns the same bias as the few keys that each row sees.

    Every line has at most one key in a row. Of a transparent head only the keys
    on its lines are returned: the caller must open its other keys.

    Args:
      rows, keys: Coordinates; the keys of a segment are consecutive, those of a
        grid row by row.

    Returns:
      values and index [N or 1, B or 1, H, T, K]; no key is open twice.
    """
    lines = SiteLines(*map(jnp.asarray, self))
    index, is_open = _keys_met(lines, rows, keys)
    value = jnp.where(is_open, _spread(lines.value), CLOSED)
    # Where lines cross, the larger value counts, once.
    order = jnp.arange(value.shape[-1])
    other_value, line_value = value[..., None, :], value[..., :, None]
    beaten = (other_value > line_value) | (
      (other_value == line_value) & (order < order[:, None])
    )
    same_key = index[..., None, :] == index[..., :, None]
    duplicate = (same_key & is_open[..., None, :] & beaten).any(axis=-1)
    return jnp.where(duplicate, CLOSED, value), index

  def ring(self, target: int, rows: Coordinates) -> tuple[int, int]:
    """Returns (first, recent), the sizes of a ring of self-attention's keys.

    These are how many of the first keys, and how many keys before a row, its
    own included, self-attention can see. Runs on the host.

    Args:
      target: the output's segment, whose first place the second key holds.
      rows: Coordinates of all rows there are.
    """
    step, c = np.asarray(self.matrix), np.asarray(self.intercept)
    to_target = np.asarray(self.segment) == target
    size = int(rows.left[0, 0, -1] + rows.right[0, 0, -1]) + 1
    grid = to_target & (rows.axes > 1)
    key = np.where(grid, size * c[..., 0] + c[..., -1], c[..., 0]) + to_target
    # A line in a grid whose M is no identity may reach either end of its rows.
    turns = grid & (step != np.eye(rows.axes)).any((-1, -2))
    moves = (step[..., 0, 0] == 1) & (np.where(turns, c[..., 0], key) <= 0)
    first = np.where(self.valid & ~moves, key + size * turns, 0)
    back = np.where(self.valid & moves, size * turns - key, 0)
    return int(first.max(initial=0)) + 1, int(back.max(initial=0)) + 1

  def check_size(self, name: str, rows: int, keys: int) -> None:
    """Does nothing, because lines fit every size."""

  def leak(self) -> tuple[int, int, int, int, int] | None:
    """Finds the first self-attention line that shows the future, on the host.

    A line over the whole sequence at index = M·row + c leaks if it stays or
    gets ahead of its row (M 1 with a positive c, or a greater M); one over the
    output itself, whose key is the row before at c = -1, from c = 0 on.
    Verticals and anti-diagonals are ahead of the first rows only, which the
    causal term closes. Over a grid a key is ahead if it is later row by row.

    Returns:
      None, or (seed, layer, head, row, column) of the first such cell.
    """
    step, c = np.asarray(self.matrix), np.asarray(self.intercept)
    axes = step.shape[-1]
    is_whole = np.asarray(self.segment) == WHOLE
    # Row by row, the first axis along which key and row differ decides.
    same = (step * (1 - np.eye(axes, dtype=int)) == 0).all((-1, -2))
    ahead = np.zeros(is_whole.shape, bool)
    for axis in range(axes):
      factor, shift = step[..., axis, axis], c[..., axis]
      ahead |= same & ((factor > 1) | (factor == 1) & (shift > 0))
      same &= (factor == 1) & (shift == 0)
    ahead |= same & ~is_whole
    rows = np.asarray(self.row_segment)
    same_segment = is_whole | (rows == ANY) | (np.asarray(self.segment) == rows)
    future = self.valid & (self.anchor == LEFT) & same_segment & ahead
    if not future.any():
      return None
    r, n, h, k = np.argwhere(future)[0].tolist()
    if axes > 1:
      return r, n, h, 0, int(c[r, n, h, k].max())
    factor, shift = int(step[r, n, h, k, 0, 0]), int(c[r, n, h, k, 0])
    shift += 0 if is_whole[r, n, h, k] else 1
    row = 0 if shift > 0 else -shift // (factor - 1) + 1
    return r, n, h, row, factor * row + shift


def of_seed(bias: dict, r: int) -> dict:
  """Selects the bias of seed r; one bias may serve all seeds.

  The leading axis is dropped.
  """
  return jax.tree.map(lambda x: x[r if len(x) > 1 else 0], bias)


def open_cells(lines, rows: Coordinates, keys: Coordinates) -> jax.Array:
  """Marks the cells that lie on lines, [N, B or 1, H, T, S] bool.

  Args:
    lines: SiteLines or Candidates, fields [N, H, 1]; one line of each head.
    rows, keys: Coordinates; PAD ones lie on no line.
  """
  of_keys = lambda x: jnp.asarray(x)[None, :, None, None]
  at = Coordinates(*map(of_keys, keys._replace(index=keys.index[None])))
  return _meet(lines, rows, at, of_keys(keys.index_right()))


def _meet(
  lines, rows: Coordinates, keys: Coordinates, index_right: jax.Array
) -> jax.Array:
  """Marks where lines lead from rows to keys, [N, B or 1, H, T, S or K].

  Args:
    lines: SiteLines or Candidates, fields [N, H, 1 or K].
    rows: Coordinates.
    keys: Coordinates with fields that broadcast to [N, B or 1, H, T, S or K].
    index_right: the keys' index from the last one, of the same shape.
  """
  is_whole, from_left = _ends(lines)
  segment, wanted = _of_rows(rows.segment), _spread(lines.row_segment)
  is_open = ((segment == wanted) | (wanted == ANY)) & (segment != PAD)
  is_open &= (keys.segment == _spread(lines.segment)) | is_whole
  target = _targets(lines, rows)
  offset = jnp.where(from_left[..., None], keys.left, keys.right)
  index = jnp.where(from_left, keys.index, index_right)
  in_segment = (offset == target).all(axis=-1)
  on_line = jnp.where(is_whole, index == target[..., 0], in_segment)
  return is_open & on_line & (keys.segment != PAD)


def _keys_met(
  lines: SiteLines, rows: Coordinates, keys: Coordinates
) -> tuple[jax.Array, jax.Array]:
  """Returns the key that each line meets in each row, and whether there is one.

  Both have the shape [N or 1, B or 1, H, T, K].
  """
  is_whole, from_left = _ends(lines)
  target = _targets(lines, rows)
  # The place where each segment begins, and its extent along each axis.
  segments = jnp.arange(SEGMENTS)[None, :, None]
  first = jnp.argmax(jnp.asarray(keys.segment)[:, None] == segments, axis=-1)
  extent = jnp.asarray(keys.left) + jnp.asarray(keys.right) + 1
  extent = jnp.take_along_axis(extent, first[..., None], axis=1)
  batch = jnp.arange(len(first))[None, :, None, None, None]
  segment = jnp.clip(_spread(lines.segment), 0, SEGMENTS - 1)
  size = extent[batch, segment]
  place_on_axis = jnp.where(from_left[..., None], target, size - 1 - target)
  offset = 0
  for axis in range(rows.axes):
    offset = offset * size[..., axis] + place_on_axis[..., axis]
  last = keys.count()[None, :, None, :, None] - 1
  index = jnp.where(from_left, target[..., 0], last - target[..., 0])
  index = jnp.where(is_whole, index, first[batch, segment] + offset)
  key_index = jnp.clip(index, 0, len(keys.index) - 1)
  of_key = lambda x: jnp.asarray(x)[batch, key_index]
  at = Coordinates(*map(of_key, keys[:3]), key_index)
  return key_index, _meet(lines, rows, at, last - key_index) & _spread(
    lines.valid
  )


def _spread(x: jax.Array) -> jax.Array:
  """Reshapes a field of lines [N, H, K, ...] to [N, 1, H, 1, K, ...]."""
  return x[:, None, :, None]


def _of_rows(x: jax.Array) -> jax.Array:
  """Reshapes a field of rows [B or 1, T, ...] to [1, B or 1, 1, T, 1, ...]."""
  return jnp.asarray(x)[None, :, None, :, None]


def _ends(lines) -> tuple[jax.Array, jax.Array]:
  """Returns whether lines lead to all keys as one segment, and whether from the
  left."""
  return _spread(lines.segment == WHOLE), _spread(lines.anchor == LEFT)


def _targets(lines, rows: Coordinates) -> jax.Array:
  """Returns the key offsets M · row + c, [N, B or 1, H, T, K, A].

  For lines to all keys as one segment, a row's offset is its place in its
  sequence.
  """
  left = jnp.asarray(rows.left)
  places = left.at[..., 0].set(rows.index)
  is_whole = _spread(lines.segment == WHOLE)[..., None]
  row_offsets = jnp.where(is_whole, _of_rows(places), _of_rows(left))
  step = (_spread(lines.matrix) * row_offsets[..., None, :]).sum(axis=-1)
  return _spread(lines.intercept) + step
