"""A bias as lines: few numbers that mean the same at every size.

A line is (segment, anchor, delta, intercept). It is open where
`left - delta·row = intercept` (anchor LEFT) or `right + delta·row = intercept`
(anchor RIGHT); row 0 predicts the first output token and `left`, `right` are a
key's offsets inside its segment. Delta is the papers' column step per row
(ABC paper, section 5): 1 diagonal, -1 anti-diagonal, 0 vertical. Segment WHOLE
stands for all keys as one segment: the papers' absolute lines.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED, Gathered

LEFT, RIGHT = 0, 1
WHOLE = -2


class SiteLines(NamedTuple):
  """The lines of one attention site, padded to K per head.

  Leading axes are [R, N or 1, H] (seeds, layers, heads); functions below that
  act on one seed take [N or 1, H]. All fields are traced.

  Attributes:
    segment, anchor, delta, intercept: [..., K] int32.
    value: [..., K] float32, the bias on the line.
    valid: [..., K] bool.
    transparent: [...] bool; such a head's bias is 0 everywhere.
  """

  segment: jax.Array
  anchor: jax.Array
  delta: jax.Array
  intercept: jax.Array
  value: jax.Array
  valid: jax.Array
  transparent: jax.Array


LineBias = dict[str, SiteLines]  # by site: "self", "cross", "encoder"


def of_seed(bias: dict, r: int) -> dict:
  """The bias of seed r, without the leading axis; one bias may serve all."""
  return jax.tree.map(lambda x: x[r % len(x)], bias)


def shared_lines(lines, heads: int) -> SiteLines:
  """SiteLines [1, 1, H, K], the same for every seed, layer and head.

  Args:
    lines: (segment, anchor, delta, intercept, value) tuples.
    heads: H.
  """
  columns = np.array(lines, np.float32).reshape(-1, 5).T
  spread = lambda x, dtype: np.broadcast_to(
    x.astype(dtype), (1, 1, heads, len(x))
  )
  ints = [spread(column, np.int32) for column in columns[:4]]
  return SiteLines(
    *ints,
    value=spread(columns[4], np.float32),
    valid=spread(np.ones(columns.shape[1]), bool),
    transparent=np.zeros((1, 1, heads), bool),
  )


def open_cells(segment, anchor, delta, intercept, row_T, keys):
  """Which cells [..., T, S] lie on lines given by [...] arrays.

  PAD keys lie on no line.
  """
  whole = keys.absolute()
  expand = lambda x: jnp.asarray(x)[..., None, None]
  segment, anchor, delta, intercept = map(
    expand, (segment, anchor, delta, intercept)
  )
  everywhere = segment == WHOLE
  left = jnp.where(everywhere, whole.left, keys.left)
  right = jnp.where(everywhere, whole.right, keys.right)
  inside = (keys.segment == segment) | (everywhere & (keys.segment >= 0))
  step = delta * row_T[:, None]
  offset = jnp.where(anchor == LEFT, left - step, right + step)
  return inside & (offset == intercept)


def dense(lines: SiteLines, row_T, keys):
  """The bias matrix of one seed's lines at any size.

  Where lines cross, the larger value counts (ABC paper, section 5: element-
  wise maximum). PAD keys are closed, also for transparent heads.

  Args:
    lines: [N or 1, H, K].
    row_T: [T] int32 row numbers.
    keys: Coordinates of the S keys (`segment`, `left`, `right`).

  Returns:
    [N or 1, H, T, S] float32; -inf where nothing is open.
  """
  exists = keys.segment >= 0

  def one_line(k, bias):
    take = lambda x: jax.lax.dynamic_index_in_dim(x, k, -1, False)
    *line, value, valid = map(take, lines[:6])
    is_open = open_cells(*line, row_T, keys) & valid[..., None, None]
    return jnp.maximum(bias, jnp.where(is_open, value[..., None, None], CLOSED))

  shape = lines.transparent.shape + (row_T.shape[0], exists.shape[0])
  lines = SiteLines(*map(jnp.asarray, lines))
  closed = jnp.full(shape, CLOSED, jnp.float32)
  bias = jax.lax.fori_loop(0, lines.value.shape[-1], one_line, closed)
  transparent = lines.transparent[..., None, None] & exists
  return jnp.where(transparent, jnp.maximum(bias, 0.0), bias)


def gathered(lines: SiteLines, row_T, keys, causal: bool) -> Gathered:
  """The same bias as `dense`, as the few keys that each row sees.

  Every line has at most one key in a row. Transparent heads have no such form:
  see `is_sparse`.

  Args:
    lines: [N or 1, H, K].
    row_T: [T] int32 row numbers.
    keys: Coordinates of the S keys; a segment's keys are consecutive.
    causal: whether keys behind the row are closed (self-attention).

  Returns:
    Gathered with [N or 1, H, T, K] arrays.
  """
  lines = SiteLines(*map(jnp.asarray, lines))
  expand = lambda x: x[..., None, :]  # [N or 1, H, 1, K]
  segment, anchor, delta, intercept = map(expand, lines[:4])
  step = delta * row_T[:, None]
  offset = jnp.where(anchor == LEFT, intercept + step, intercept - step)
  whole = keys.absolute()
  last = keys.segment.shape[0] - 1
  found = jnp.zeros(offset.shape, jnp.int32)
  is_open = jnp.zeros(offset.shape, bool)
  names = (segment == WHOLE, whole), (segment >= 0, keys)
  for chosen, at in names:
    # The first key of the segment; from its right end, the last.
    same = jnp.asarray(at.segment) == jnp.maximum(segment, 0)[..., None]
    first = jnp.argmax(same, axis=-1)
    end = last - jnp.argmax(same[..., ::-1], axis=-1)
    index = jnp.where(anchor == LEFT, first + offset, end - offset)
    index = jnp.clip(index, 0, last)
    hit = chosen & open_at(at, index, segment, anchor, offset)
    found = jnp.where(hit, index, found)
    is_open |= hit
  is_open &= expand(lines.valid)
  if causal:
    is_open &= jnp.asarray(keys.left)[found] <= row_T[:, None]
  bias = jnp.where(is_open, expand(lines.value), CLOSED)
  # Where lines cross, the larger value counts, once.
  size = bias.shape[-1]
  order = jnp.arange(size)
  other, own = bias[..., None, :], bias[..., :, None]
  beaten = (other > own) | ((other == own) & (order < order[:, None]))
  met = found[..., None, :] == found[..., :, None]
  twice = (met & is_open[..., None, :] & beaten).any(axis=-1)
  return Gathered(found, jnp.where(twice, CLOSED, bias))


def open_at(keys, index, segment, anchor, offset):
  """Whether key `index` is that of a segment at an offset from its anchor."""
  there = jnp.asarray(keys.segment)[index] == jnp.maximum(segment, 0)
  left, right = jnp.asarray(keys.left)[index], jnp.asarray(keys.right)[index]
  return there & (jnp.where(anchor == LEFT, left, right) == offset)


def is_sparse(bias: dict) -> bool:
  """Whether every head of every site has lines or is closed; host-side."""
  return {"self", "cross"} <= set(bias) and not any(
    np.any(site.transparent) for site in bias.values()
  )


def phrase(segment, anchor, delta, intercept, names) -> str:
  """One line in words, like "b: right-1·row = 0".

  Args:
    segment, anchor, delta, intercept: of one line.
    names: segment names.
  """
  name = "whole" if segment == WHOLE else names[segment]
  step = -int(delta) if anchor == LEFT else int(delta)
  row = f"{step:+d}·row" if step else ""
  return f"{name}: {('left', 'right')[anchor]}{row} = {int(intercept)}"


def leak(lines: SiteLines):
  """The first self-attention line that shows the future.

  A line is at left = delta·row + intercept. It leaks if it stays or gets ahead
  of its row (delta 1 with a positive intercept, or a greater delta). Verticals
  and anti-diagonals are ahead of the first rows only, where the causal term
  closes them, as in the statistics that they were kept by.

  Returns:
    None, or (seed, layer, head, row, column) of the first such cell.
  """
  ahead = (lines.delta > 1) | ((lines.delta == 1) & (lines.intercept > 0))
  future = lines.valid & (lines.anchor == LEFT) & ahead
  if not np.any(future):
    return None
  r, n, h, k = (int(x) for x in np.argwhere(np.asarray(future))[0])
  delta = int(lines.delta[r, n, h, k])
  intercept = int(lines.intercept[r, n, h, k])
  row = 0
  while delta * row + intercept <= row:
    row += 1
  return r, n, h, row, delta * row + intercept


def leak_dense(matrix):
  """The first open cell behind its row of [R, N, H, T, T], as `leak` does."""
  rows, columns = matrix.shape[-2:]
  future = np.arange(columns) > np.arange(rows)[:, None]
  found = np.argwhere((np.asarray(matrix) != CLOSED) & future)
  return tuple(map(int, found[0])) if len(found) else None
