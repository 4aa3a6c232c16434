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
from lengthgen_jax.coordinates import PAD, Coordinates

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
    lined: whether `gather` serves.
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
  def shape(self):
    """(R, N or 1, H), or without R."""
    return self.transparent.shape

  def dense(self, rows, keys):
    """The bias of one seed at any size: [N or 1, B or 1, H, T, S] float32.

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
    value = jnp.where(is_open, _spread(lines.value), CLOSED)
    # Where lines cross, the larger value counts, once.
    order = jnp.arange(value.shape[-1])
    other, own = value[..., None, :], value[..., :, None]
    beaten = (other > own) | ((other == own) & (order < order[:, None]))
    met = index[..., None, :] == index[..., :, None]
    twice = (met & is_open[..., None, :] & beaten).any(axis=-1)
    return jnp.where(twice, CLOSED, value), index

  def ring(self, target: int, rows: Coordinates) -> tuple[int, int]:
    """(first, recent): how many of the first keys, and how many before a row,
    its own included, its self-attention can see; host-side.

    The second key holds the first place of `target`; `rows` are all there are.
    """
    step, c = np.asarray(self.matrix), np.asarray(self.intercept)
    said = np.asarray(self.segment) == target
    size = int(rows.left[0, 0, -1] + rows.right[0, 0, -1]) + 1
    grid = said & (rows.axes > 1)
    key = np.where(grid, size * c[..., 0] + c[..., -1], c[..., 0]) + said
    # A line that turns in a grid may get to either end of its rows.
    turns = grid & (step != np.eye(rows.axes)).any((-1, -2))
    moves = (step[..., 0, 0] == 1) & (np.where(turns, c[..., 0], key) <= 0)
    first = np.where(self.valid & ~moves, key + size * turns, 0)
    back = np.where(self.valid & moves, size * turns - key, 0)
    return int(first.max(initial=0)) + 1, int(back.max(initial=0)) + 1

  def check_size(self, name: str, rows: int, keys: int) -> None:
    """Lines fit every size."""

  def leak(self):
    """The first self-attention line that shows the future; host-side.

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
    future = self.valid & (self.anchor == LEFT) & own & ahead
    if not future.any():
      return None
    r, n, h, k = np.argwhere(future)[0].tolist()
    if axes > 1:
      return r, n, h, 0, int(c[r, n, h, k].max())
    m, shift = int(step[r, n, h, k, 0, 0]), int(c[r, n, h, k, 0])
    shift += 0 if whole[r, n, h, k] else 1
    row = 0 if shift > 0 else -shift // (m - 1) + 1
    return r, n, h, row, m * row + shift


def of_seed(bias: dict, r: int) -> dict:
  """The bias of seed r, without the leading axis; one bias may serve all."""
  return jax.tree.map(lambda x: x[r if len(x) > 1 else 0], bias)


def open_cells(lines, rows, keys):
  """Which cells [N, B or 1, H, T, S] lie on lines.

  Args:
    lines: SiteLines or Candidates, fields [N, H, 1]; one line of each head.
    rows, keys: Coordinates; PAD ones lie on no line.
  """
  of_keys = lambda x: jnp.asarray(x)[None, :, None, None]
  at = Coordinates(*map(of_keys, keys._replace(index=keys.index[None])))
  return _meet(lines, rows, at, of_keys(keys.index_right()))


def _meet(lines, rows, at: Coordinates, index_right):
  """Whether lines lead from rows to keys, [N, B or 1, H, T, S or K].

  Args:
    lines: fields [N, H, 1 or K].
    rows: Coordinates.
    at: the keys', fields that spread to [N, B or 1, H, T, S or K].
    index_right: the keys' index from the last one, alike.
  """
  whole, from_left = _ends(lines)
  own, wanted = _of_rows(rows.segment), _spread(lines.row_segment)
  is_open = ((own == wanted) | (wanted == ANY)) & (own != PAD)
  is_open &= (at.segment == _spread(lines.segment)) | whole
  target = _targets(lines, rows)
  offset = jnp.where(from_left[..., None], at.left, at.right)
  index = jnp.where(from_left, at.index, index_right)
  in_segment = (offset == target).all(axis=-1)
  on_line = jnp.where(whole, index == target[..., 0], in_segment)
  return is_open & on_line & (at.segment != PAD)


def _keys_met(lines: SiteLines, rows, keys):
  """The key that each line meets in each row, and whether there is one.

  Both [N or 1, B or 1, H, T, K].
  """
  whole, from_left = _ends(lines)
  target = _targets(lines, rows)
  # Where each segment begins, and how far it extends along each axis.
  names = jnp.arange(SEGMENTS)[None, :, None]
  first = jnp.argmax(jnp.asarray(keys.segment)[:, None] == names, axis=-1)
  extent = jnp.asarray(keys.left) + jnp.asarray(keys.right) + 1
  extent = jnp.take_along_axis(extent, first[..., None], axis=1)
  batch = jnp.arange(len(first))[None, :, None, None, None]
  name = jnp.clip(_spread(lines.segment), 0, SEGMENTS - 1)
  size = extent[batch, name]
  place = jnp.where(from_left[..., None], target, size - 1 - target)
  inside = 0
  for axis in range(rows.axes):
    inside = inside * size[..., axis] + place[..., axis]
  last = keys.count()[None, :, None, :, None] - 1
  index = jnp.where(from_left, target[..., 0], last - target[..., 0])
  index = jnp.where(whole, index, first[batch, name] + inside)
  found = jnp.clip(index, 0, len(keys.index) - 1)
  of_found = lambda x: jnp.asarray(x)[batch, found]
  at = Coordinates(*map(of_found, keys[:3]), found)
  return found, _meet(lines, rows, at, last - found) & _spread(lines.valid)


def _spread(x):
  """A field of lines [N, H, K, ...] as [N, 1, H, 1, K, ...]."""
  return x[:, None, :, None]


def _of_rows(x):
  """A field of rows [B or 1, T, ...] as [1, B or 1, 1, T, 1, ...]."""
  return jnp.asarray(x)[None, :, None, :, None]


def _ends(lines):
  """Whether lines lead to all keys as one, and whether from the left end."""
  return _spread(lines.segment == WHOLE), _spread(lines.anchor == LEFT)


def _targets(lines, rows):
  """M · row + c [N, B or 1, H, T, K, A]; to all keys as one, a row's offset is
  its place in its sequence."""
  left = jnp.asarray(rows.left)
  places = left.at[..., 0].set(rows.index)
  whole = _spread(lines.segment == WHOLE)[..., None]
  along = jnp.where(whole, _of_rows(places), _of_rows(left))
  step = (_spread(lines.matrix) * along[..., None, :]).sum(axis=-1)
  return _spread(lines.intercept) + step
