"""Attention biases as lines, which fit inputs of every size.

A line is (row segment, key segment, anchor, M, c). A cell (row, key) of these
segments lies on it if, on every axis, the key's offset from one end of its
segment (the anchor) is M times the row's offset from the left end of its own
segment, plus c. With one axis, M is the step in columns per row of the ABC
paper (section 5: 1 is a diagonal, -1 an anti-diagonal, 0 a vertical) for anchor
LEFT, and its negative for anchor RIGHT. A line whose key segment is WHOLE takes
the index of row and key in the whole sequence, the key's from the anchor, in
place of their offsets: these are the absolute lines of the paper.

A cell is open if its bias is not -inf. Shapes: R seeds, N layers, B batch, H
heads, T rows, S keys, K lines of a head, A axes of offsets (1, or 2 in a grid).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED, entry
from lengthgen_jax.coordinates import PAD, Array, Coordinates

LEFT, RIGHT = 0, 1  # anchors
WHOLE = -2  # as a key segment: the whole sequence of keys
ANY = -1  # as a row segment: the rows of all segments
MAX_SEGMENTS = 8  # the most segments that `gather` can look keys up in


class Lines(NamedTuple):
  """The positions of lines in a matrix of scores, without the bias; all fields
  are int32."""

  row_segment: Array  # [...], the segment of the rows, or ANY
  segment: Array  # [...], the segment of the keys, or WHOLE
  # [...], LEFT or RIGHT: the end of that segment from which keys count
  anchor: Array
  matrix: Array  # [..., A, A], M by key axis and row axis
  intercept: Array  # [..., A], c by key axis

  def take(self, index) -> "Lines":
    """Returns the lines at a numpy index of the leading axes."""
    return Lines(*(np.asarray(field)[index] for field in self))

  def describe(self, segment_names: Sequence[str]) -> str:
    """Describes one line by its equation, like "b: right-1·row = 0": the key is
    in segment b, and its offset from the right end, less the row's offset, is
    0."""
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
  """The lines of one attention site, padded to K per head.

  Leading axes are [R or 1, N or 1, H], 1 if all seeds or layers share them;
  `dense` and `gather` need the SiteLines of one seed, [N or 1, H] (`of_seed`).
  """

  row_segment: Array  # [..., K], like the next four: see Lines
  segment: Array
  anchor: Array
  matrix: Array
  intercept: Array
  value: Array  # [..., K] float32, the bias on the line
  valid: Array  # [..., K] bool, False where an entry is padding
  transparent: Array  # [...] bool, heads that see every token, with a bias of 0

  @property
  def shape(self) -> tuple[int, ...]:
    """The leading axes, (R or 1, N or 1, H), or the same without R."""
    return self.transparent.shape

  @property
  def lines(self) -> Lines:
    """The lines as Lines, padding included."""
    return Lines(*self[:5])

  def dense(self, rows: Coordinates, keys: Coordinates) -> jax.Array:
    """Returns the bias of one seed, [N or 1, B or 1, H, T, S] float32.

    Where lines cross, the larger value counts (ABC paper, section 5). The bias
    is -inf where no line lies, and at PAD keys also for transparent heads.
    """
    lines = Lines(*map(jnp.asarray, self.lines))
    value, valid = jnp.asarray(self.value), jnp.asarray(self.valid)
    batch = max(len(rows.segment), len(keys.segment))
    sizes = len(rows.index), len(keys.index)
    shape = (value.shape[0], batch, value.shape[1], *sizes)

    def add_line(index: jax.Array, bias: jax.Array) -> jax.Array:
      take = lambda x: jax.lax.dynamic_slice_in_dim(x, index, 1, axis=2)
      is_open = cells_on_line(Lines(*map(take, lines)), rows, keys)
      is_open &= _expand_lines(take(valid))
      line_bias = jnp.where(is_open, _expand_lines(take(value)), CLOSED)
      return jnp.maximum(bias, line_bias)

    bias = jnp.full(shape, CLOSED, jnp.float32)
    if value.shape[-1]:  # without a line, `add_line` could not be traced
      bias = jax.lax.fori_loop(0, value.shape[-1], add_line, bias)
    exists = (jnp.asarray(keys.segment) != PAD)[None, :, None, None]
    transparent = _expand_lines(jnp.asarray(self.transparent)[..., None])
    return jnp.where(transparent & exists, 0.0, bias)

  def gather(
    self, rows: Coordinates, keys: Coordinates
  ) -> tuple[jax.Array, jax.Array]:
    """Returns the bias of one seed in sparse form, and the index of the key
    that each line has in each row, both [N or 1, B or 1, H, T, K].

    A line has at most one key in a row. The bias is -inf where there is none,
    and on all but one of the lines that have the same key in a row. The keys
    of a segment must be consecutive, those of a grid in row-major order, and
    segments numbered below MAX_SEGMENTS.
    """
    index, is_open = _keys_on_lines(
      Lines(*map(jnp.asarray, self.lines)), rows, keys
    )
    is_open &= _expand_lines(jnp.asarray(self.valid))
    value = jnp.where(is_open, _expand_lines(jnp.asarray(self.value)), CLOSED)
    # Where lines cross, the one with the largest value counts, or the first of
    # several.
    order = jnp.arange(value.shape[-1])
    other_value, line_value = value[..., None, :], value[..., :, None]
    beaten = (other_value > line_value) | (
      (other_value == line_value) & (order < order[:, None])
    )
    same_key = index[..., None, :] == index[..., :, None]
    duplicate = (same_key & is_open[..., None, :] & beaten).any(axis=-1)
    return jnp.where(duplicate, CLOSED, value), index

  def cache_window(self, target: int, rows: Coordinates) -> tuple[int, int]:
    """Returns (first, recent): every row of the output, whose segment is
    `target`, attends only to the first `first` keys of the sequence and to the
    last `recent` ones up to its own.

    This is for the decoder of an encoder-decoder, whose first key is the start
    token, without transparent heads and leaks (`first_leak`); lines to its
    outputs or to the whole sequence are anchored left, and M is a diagonal
    matrix. Runs on the host.
    """
    matrix, intercept = np.asarray(self.matrix), np.asarray(self.intercept)
    to_output = np.asarray(self.segment) == target
    grid_row_size = int(rows.left[0, 0, -1] + rows.right[0, 0, -1]) + 1
    on_grid = to_output & (rows.axes > 1)
    # The index of the key in row 0; on a diagonal, that of row i is i more.
    key = intercept[..., 0]
    # If M is not the identity, the key may be anywhere in its row of the grid.
    not_identity = on_grid & (matrix != np.eye(rows.axes)).any((-1, -2))
    column = np.where(not_identity, 0, intercept[..., -1])
    on_grid_key = grid_row_size * intercept[..., 0] + column
    key = np.where(on_grid, on_grid_key, key) + to_output
    is_recent = matrix[..., 0, 0] == 1
    is_recent &= np.where(not_identity, intercept[..., 0], key) <= 0
    spread = grid_row_size * not_identity
    first = np.where(self.valid & ~is_recent, key + spread, 0)
    recent = np.where(self.valid & is_recent, spread - key, 0)
    return int(first.max(initial=0)) + 1, int(recent.max(initial=0)) + 1

  def first_leak(self) -> tuple[int, ...] | None:
    """Returns (seed, layer, head) of the first line of self-attention that
    leads to the future; None if there is none.

    Verticals and anti-diagonals do so in the first rows only, where the causal
    mask closes them, and are left out. Runs on the host, on the SiteLines of
    all seeds.
    """
    matrix, intercept = np.asarray(self.matrix), np.asarray(self.intercept)
    axes = matrix.shape[-1]
    is_whole = np.asarray(self.segment) == WHOLE
    # A line of the whole sequence, index = M·row + c, leads to the future in
    # all but finitely many rows if M is 1 and c positive, or if M is greater
    # than 1; a line of the output from c = 0 on, since the inputs are the
    # outputs shifted by one: c = -1 is the row's own input.
    # In row-major order the first axis on which key and row differ decides.
    same_so_far = (matrix * (1 - np.eye(axes, dtype=int)) == 0).all((-1, -2))
    ahead = np.zeros(is_whole.shape, bool)
    for axis in range(axes):
      factor, shift = matrix[..., axis, axis], intercept[..., axis]
      ahead |= same_so_far & ((factor > 1) | (factor == 1) & (shift > 0))
      same_so_far &= (factor == 1) & (shift == 0)
    ahead |= same_so_far & ~is_whole
    rows = np.asarray(self.row_segment)
    same_segment = is_whole | (rows == ANY) | (np.asarray(self.segment) == rows)
    future = self.valid & (self.anchor == LEFT) & same_segment & ahead
    leaks = np.argwhere(future)[:, :3].tolist()
    return tuple(leaks[0]) if leaks else None


class Line(NamedTuple):
  """One line of a task with one axis, and the bias on it."""

  segment: int  # of the keys, or WHOLE
  anchor: int  # LEFT or RIGHT
  step: int  # M, the negative of the paper's step if the anchor is RIGHT
  intercept: int  # c
  value: float = 0.0  # the bias
  row_segment: int = ANY


def shared_lines(lines: Sequence[Line], heads: int) -> SiteLines:
  """Returns SiteLines [1, 1, H, K] with the same K lines in every head, which
  all seeds and layers share."""
  shape = 1, 1, heads, len(lines)

  def field(name: str, dtype: type = np.int32) -> np.ndarray:
    values = np.array([getattr(line, name) for line in lines], dtype)
    return np.broadcast_to(values, shape)

  return SiteLines(
    row_segment=field("row_segment"),
    segment=field("segment"),
    anchor=field("anchor"),
    matrix=field("step")[..., None, None],
    intercept=field("intercept")[..., None],
    value=field("value", np.float32),
    valid=np.ones(shape, bool),
    transparent=np.zeros((1, 1, heads), bool),
  )


def of_seed(scaffold: dict, index: int) -> dict:
  """Returns the scaffold of the run's seed `index`, without the leading axis R;
  with one entry on this axis, that of all seeds."""
  return entry(scaffold, index)


def cells_on_line(
  lines: Lines, rows: Coordinates, keys: Coordinates
) -> jax.Array:
  """Returns whether each cell lies on a line, [N or 1, B or 1, H, T, S];
  `lines` are one of each head, [N or 1, H, 1, ...]. No line crosses PAD."""
  expand_keys = lambda x: jnp.asarray(x)[None, :, None, None]
  fields = *keys[:3], keys.index[None]
  expanded_keys = Coordinates(*map(expand_keys, fields))
  index_right = expand_keys(keys.index_right())
  return _are_on_lines(lines, rows, expanded_keys, index_right)


@jax.jit
def cells_of_each(
  lines: Lines, rows: Coordinates, keys: Coordinates
) -> jax.Array:
  """Returns whether each cell lies on each of C lines, [C, T, S], of a batch's
  first example."""
  # `cells_on_line` takes one line per head, so each line is one head.
  lines_as_heads = Lines(*(jnp.asarray(x)[None, :, None] for x in lines))
  return cells_on_line(lines_as_heads, rows, keys)[0, 0]


def _keys_on_lines(
  lines: Lines, rows: Coordinates, keys: Coordinates
) -> tuple[jax.Array, jax.Array]:
  """Returns the index of the key that each line has in each row, and whether
  there is such a key, both [N or 1, B or 1, H, T, K]."""
  is_whole = _expand_lines(lines.segment == WHOLE)
  from_left = _expand_lines(lines.anchor == LEFT)
  offset = _key_offsets(lines, rows)
  # Where the key would stand. `_are_on_lines` says whether it does; clipped
  # indices only keep look-ups in range. First, the index of the first key of
  # each segment [B, segments], and its size along each axis.
  segments = jnp.arange(MAX_SEGMENTS)[None, :, None]
  first = jnp.argmax(jnp.asarray(keys.segment)[:, None] == segments, axis=-1)
  sizes = jnp.asarray(keys.left) + jnp.asarray(keys.right) + 1
  sizes = jnp.take_along_axis(sizes, first[..., None], axis=1)
  batch = jnp.arange(len(first))[None, :, None, None, None]
  segment = jnp.clip(_expand_lines(lines.segment), 0, MAX_SEGMENTS - 1)
  size = sizes[batch, segment]
  left = jnp.where(from_left[..., None], offset, size - 1 - offset)
  in_segment = 0
  for axis in range(rows.axes):
    in_segment = in_segment * size[..., axis] + left[..., axis]
  last = keys.num_tokens()[None, :, None, :, None] - 1
  index = jnp.where(from_left, offset[..., 0], last - offset[..., 0])
  index = jnp.where(is_whole, index, first[batch, segment] + in_segment)
  index = jnp.clip(index, 0, len(keys.index) - 1)
  look_up = lambda x: jnp.asarray(x)[batch, index]
  line_keys = Coordinates(*map(look_up, keys[:3]), index=index)
  return index, _are_on_lines(lines, rows, line_keys, last - index)


def _are_on_lines(
  lines: Lines, rows: Coordinates, keys: Coordinates, index_right: jax.Array
) -> jax.Array:
  """Returns whether cells (row, key) lie on lines, [N or 1, B or 1, H, T, S or
  K].

  Lines [N or 1, H, 1, ...], one of each head, are compared with all keys; lines
  [N or 1, H, K, ...] with one key each. Fields of `keys`, and `index_right` (0
  for the last key), broadcast to the shape of the result.
  """
  is_whole = _expand_lines(lines.segment == WHOLE)
  from_left = _expand_lines(lines.anchor == LEFT)
  segment = _expand_rows(rows.segment)
  row_segment = _expand_lines(lines.row_segment)
  is_open = (segment == row_segment) | (row_segment == ANY)
  is_open &= (segment != PAD) & (keys.segment != PAD)
  is_open &= (keys.segment == _expand_lines(lines.segment)) | is_whole
  line_offset = _key_offsets(lines, rows)
  offset = jnp.where(from_left[..., None], keys.left, keys.right)
  index = jnp.where(from_left, keys.index, index_right)
  in_segment = (offset == line_offset).all(axis=-1)
  on_line = jnp.where(is_whole, index == line_offset[..., 0], in_segment)
  return is_open & on_line


def _key_offsets(lines: Lines, rows: Coordinates) -> jax.Array:
  """Returns the offsets M · (offset of the row) + c that the keys on lines have
  in each row, [N or 1, B or 1, H, T, K, A]."""
  left = jnp.asarray(rows.left)
  indices = left.at[..., 0].set(rows.index)
  is_whole = _expand_lines(lines.segment == WHOLE)[..., None]
  row_offsets = jnp.where(is_whole, _expand_rows(indices), _expand_rows(left))
  step = (_expand_lines(lines.matrix) * row_offsets[..., None, :]).sum(axis=-1)
  return _expand_lines(lines.intercept) + step


def _expand_lines(x: Array) -> jax.Array:
  """Reshapes a field of lines [N, H, K, ...] to [N, 1, H, 1, K, ...]."""
  return jnp.asarray(x)[:, None, :, None]


def _expand_rows(x: Array) -> jax.Array:
  """Reshapes a field of rows [B or 1, T, ...] to [1, B or 1, 1, T, 1, ...]."""
  return jnp.asarray(x)[None, :, None, :, None]
