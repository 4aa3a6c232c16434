"""This module holds biases as lines: few numbers that mean the same at every
size.

A line is (row segment, key segment, anchor, M, c). It is open where, on every
axis of the key, `key's offset from its anchor = M · row's left offset + c`.
With one axis M is the papers' column step per row (ABC paper, section 5: 1
diagonal, -1 anti-diagonal, 0 vertical) for anchor LEFT, and its negative for
anchor RIGHT. Key segment WHOLE stands for all keys as one segment and for the
row's own place in its sequence: the papers' absolute lines.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.coordinates import PAD, Array, Coordinates

LEFT, RIGHT = 0, 1
WHOLE = -2  # key segment: all keys as one
ANY = -1  # row segment: every row
SEGMENTS = 8  # more than any sequence has


class Lines(NamedTuple):
  """Lines say where lines lie, and not what the bias is on them.

  All fields are int32 and have the same leading axes.

  Attributes:
    row_segment, segment, anchor: [...].
    matrix: [..., A, A], M by key axis and row axis.
    intercept: [..., A], c by key axis.
  """

  row_segment: Array
  segment: Array
  anchor: Array
  matrix: Array
  intercept: Array

  def take(self, index) -> "Lines":
    """Returns the lines at an index of the leading axes."""
    return Lines(*(np.asarray(field)[index] for field in self))

  def describe(self, segment_names: Sequence[str]) -> str:
    """Describes one line in words, like "b: right-1·row = 0".

    Args:
      segment_names: names of the keys' segments, by number.
    """
    name = "whole"
    if self.segment != WHOLE:
      name = segment_names[int(self.segment)]
    end = ("left", "right")[int(self.anchor)]
    axes = [""] if len(self.intercept) == 1 else ["j", "k"]
    equations = []
    for axis, label in enumerate(axes):
      terms = "".join(
        f"{-int(factor):+d}·row{row_axis}"
        for factor, row_axis in zip(self.matrix[axis], axes, strict=True)
        if factor
      )
      equations.append(f"{end}{label}{terms} = {int(self.intercept[axis])}")
    return f"{name}: {', '.join(equations)}"


class SiteLines(NamedTuple):
  """SiteLines holds the lines of one attention site, padded to K per head.

  Leading axes are [R, N or 1, H] (seeds, layers, heads); methods that act on
  one seed take [N or 1, H]. All fields are traced.

  Attributes:
    row_segment, segment, anchor, matrix, intercept: [..., K], see Lines.
    value: [..., K] float32, the bias on the line.
    valid: [..., K] bool, False where an entry is padding.
    transparent: [...] bool; such a head's bias is 0 everywhere.
    supports_sparse: whether there is `gather`.
  """

  row_segment: Array
  segment: Array
  anchor: Array
  matrix: Array
  intercept: Array
  value: Array
  valid: Array
  transparent: Array
  supports_sparse = True

  @property
  def shape(self) -> tuple[int, ...]:
    """Returns the leading axes, (R, N or 1, H), or the same without R."""
    return self.transparent.shape

  @property
  def lines(self) -> Lines:
    """Returns where the lines lie."""
    return Lines(*self[:5])

  def dense(self, rows: Coordinates, keys: Coordinates) -> jax.Array:
    """Returns the bias of one seed at any size, [N or 1, B or 1, H, T, S]
    float32.

    Where lines cross, the larger value counts (ABC paper, section 5); -inf
    where nothing is open. PAD keys are closed, also for transparent heads.
    """
    lines = Lines(*map(jnp.asarray, self.lines))
    value, valid = jnp.asarray(self.value), jnp.asarray(self.valid)
    batch = max(len(rows.segment), len(keys.segment))
    sizes = len(rows.index), len(keys.index)
    shape = (value.shape[0], batch, value.shape[1], *sizes)

    def add_line(k, bias):
      take = lambda x: jax.lax.dynamic_slice_in_dim(x, k, 1, axis=2)
      is_open = open_cells(Lines(*map(take, lines)), rows, keys)
      is_open &= _of_lines(take(valid))
      line_bias = jnp.where(is_open, _of_lines(take(value)), CLOSED)
      return jnp.maximum(bias, line_bias)

    closed = jnp.full(shape, CLOSED, jnp.float32)
    bias = jax.lax.fori_loop(0, value.shape[-1], add_line, closed)
    exists = (jnp.asarray(keys.segment) != PAD)[None, :, None, None]
    transparent = _of_lines(jnp.asarray(self.transparent)[..., None])
    return jnp.where(transparent & exists, 0.0, bias)

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
    index, is_open = _keys_on_lines(
      Lines(*map(jnp.asarray, self.lines)), rows, keys
    )
    is_open &= _of_lines(jnp.asarray(self.valid))
    value = jnp.where(is_open, _of_lines(jnp.asarray(self.value)), CLOSED)
    # Where lines cross, the larger value counts, once.
    order = jnp.arange(value.shape[-1])
    other_value, line_value = value[..., None, :], value[..., :, None]
    beaten = (other_value > line_value) | (
      (other_value == line_value) & (order < order[:, None])
    )
    same_key = index[..., None, :] == index[..., :, None]
    duplicate = (same_key & is_open[..., None, :] & beaten).any(axis=-1)
    return jnp.where(duplicate, CLOSED, value), index

  def cache_window(self, target: int, rows: Coordinates) -> tuple[int, int]:
    """Returns (first, recent), the keys that decoding must keep in its cache.

    These are how many of the first keys, and how many keys before a row, its
    own included, self-attention can see. Runs on the host.

    Args:
      target: the output's segment, whose first place the second key holds.
      rows: Coordinates of all rows there are.
    """
    step, c = np.asarray(self.matrix), np.asarray(self.intercept)
    to_target = np.asarray(self.segment) == target
    row_size = int(rows.left[0, 0, -1] + rows.right[0, 0, -1]) + 1
    on_grid = to_target & (rows.axes > 1)
    key = np.where(on_grid, row_size * c[..., 0] + c[..., -1], c[..., 0])
    key += to_target
    # A line in a grid whose M is no identity may reach either end of its rows.
    turns = on_grid & (step != np.eye(rows.axes)).any((-1, -2))
    moves = (step[..., 0, 0] == 1) & (np.where(turns, c[..., 0], key) <= 0)
    first = np.where(self.valid & ~moves, key + row_size * turns, 0)
    back = np.where(self.valid & moves, row_size * turns - key, 0)
    return int(first.max(initial=0)) + 1, int(back.max(initial=0)) + 1

  def check_size(self, site: str, rows: int, keys: int) -> None:
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


class Line(NamedTuple):
  """A Line is one line with one axis, as a person writes it."""

  segment: int
  anchor: int
  step: int  # M
  intercept: int
  value: float = 0.0
  row_segment: int = ANY


def shared_lines(lines: Sequence[Line], heads: int) -> SiteLines:
  """Returns SiteLines [1, 1, H, K], the same for every seed, layer and head."""

  def column(field: str, *shape: int, dtype: type = np.int32) -> np.ndarray:
    values = np.array([getattr(line, field) for line in lines], dtype)
    values = values.reshape(-1, *shape)
    return np.broadcast_to(values, (1, 1, heads, *values.shape))

  return SiteLines(
    row_segment=column("row_segment"),
    segment=column("segment"),
    anchor=column("anchor"),
    matrix=column("step", 1, 1),
    intercept=column("intercept", 1),
    value=column("value", dtype=np.float32),
    valid=np.ones((1, 1, heads, len(lines)), bool),
    transparent=np.zeros((1, 1, heads), bool),
  )


def of_seed(scaffold: dict, r: int) -> dict:
  """Selects the scaffold of seed r, without the leading axis of seeds.

  One scaffold may serve all seeds.
  """
  return jax.tree.map(lambda x: x[r if len(x) > 1 else 0], scaffold)


# Shapes below: N layers, B batch, H heads, T rows, S keys, K lines, A axes.


def open_cells(lines: Lines, rows: Coordinates, keys: Coordinates) -> jax.Array:
  """Marks the cells that lie on lines, [N, B or 1, H, T, S] bool.

  Args:
    lines: fields [N, H, 1]; one line of each head.
    rows, keys: Coordinates; PAD ones lie on no line.
  """
  of_keys = lambda x: jnp.asarray(x)[None, :, None, None]
  spread_keys = Coordinates(
    of_keys(keys.segment),
    of_keys(keys.left),
    of_keys(keys.right),
    of_keys(keys.index[None]),
  )
  return _meet(lines, rows, spread_keys, of_keys(keys.index_right()))


def _keys_on_lines(
  lines: Lines, rows: Coordinates, keys: Coordinates
) -> tuple[jax.Array, jax.Array]:
  """Returns the key that each line meets in each row, and whether there is one.

  Both have the shape [N or 1, B or 1, H, T, K].
  """
  is_whole = _of_lines(lines.segment == WHOLE)
  from_left = _of_lines(lines.anchor == LEFT)
  offset = _key_offsets(lines, rows)
  # The place where each segment begins, and its extent along each axis.
  segments = jnp.arange(SEGMENTS)[None, :, None]
  first = jnp.argmax(jnp.asarray(keys.segment)[:, None] == segments, axis=-1)
  extent = jnp.asarray(keys.left) + jnp.asarray(keys.right) + 1
  extent = jnp.take_along_axis(extent, first[..., None], axis=1)
  batch = jnp.arange(len(first))[None, :, None, None, None]
  segment = jnp.clip(_of_lines(lines.segment), 0, SEGMENTS - 1)
  size = extent[batch, segment]
  left = jnp.where(from_left[..., None], offset, size - 1 - offset)
  in_segment = 0
  for axis in range(rows.axes):
    in_segment = in_segment * size[..., axis] + left[..., axis]
  last = keys.num_tokens()[None, :, None, :, None] - 1
  index = jnp.where(from_left, offset[..., 0], last - offset[..., 0])
  index = jnp.where(is_whole, index, first[batch, segment] + in_segment)
  index = jnp.clip(index, 0, len(keys.index) - 1)
  look_up = lambda x: jnp.asarray(x)[batch, index]
  met_keys = Coordinates(
    look_up(keys.segment), look_up(keys.left), look_up(keys.right), index
  )
  return index, _meet(lines, rows, met_keys, last - index)


def _meet(
  lines: Lines, rows: Coordinates, keys: Coordinates, index_right: jax.Array
) -> jax.Array:
  """Marks where lines lead from rows to keys, [N, B or 1, H, T, S or K].

  The lines' fields are [N, H, 1 or K]; those of the keys, and their index from
  the last one, broadcast to the shape of the result.
  """
  is_whole = _of_lines(lines.segment == WHOLE)
  from_left = _of_lines(lines.anchor == LEFT)
  segment, row_segment = _of_rows(rows.segment), _of_lines(lines.row_segment)
  is_open = (segment == row_segment) | (row_segment == ANY)
  is_open &= (segment != PAD) & (keys.segment != PAD)
  is_open &= (keys.segment == _of_lines(lines.segment)) | is_whole
  line_offset = _key_offsets(lines, rows)
  offset = jnp.where(from_left[..., None], keys.left, keys.right)
  index = jnp.where(from_left, keys.index, index_right)
  in_segment = (offset == line_offset).all(axis=-1)
  on_line = jnp.where(is_whole, index == line_offset[..., 0], in_segment)
  return is_open & on_line


def _key_offsets(lines: Lines, rows: Coordinates) -> jax.Array:
  """Returns the key offsets M · row + c, [N, B or 1, H, T, K, A].

  For lines to all keys as one segment, a row's offset is its place in its
  sequence.
  """
  left = jnp.asarray(rows.left)
  places = left.at[..., 0].set(rows.index)
  is_whole = _of_lines(lines.segment == WHOLE)[..., None]
  row_offsets = jnp.where(is_whole, _of_rows(places), _of_rows(left))
  step = (_of_lines(lines.matrix) * row_offsets[..., None, :]).sum(axis=-1)
  return _of_lines(lines.intercept) + step


def _of_lines(x: Array) -> jax.Array:
  """Reshapes a field of lines [N, H, K, ...] to [N, 1, H, 1, K, ...]."""
  return jnp.asarray(x)[:, None, :, None]


def _of_rows(x: Array) -> jax.Array:
  """Reshapes a field of rows [B or 1, T, ...] to [1, B or 1, 1, T, 1, ...]."""
  return jnp.asarray(x)[None, :, None, :, None]
