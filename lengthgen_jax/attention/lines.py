"""A bias as lines: few numbers that mean the same at every size.

A line is (segment, anchor, delta, intercept). It is open where
`left - delta·row = intercept` (anchor LEFT) or `right + delta·row = intercept`
(anchor RIGHT); row 0 predicts the first output token and `left`, `right` are a
key's offsets inside its segment. Delta is the papers' column step per row
(ABC paper, section 5): 1 diagonal, -1 anti-diagonal, 0 vertical.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED

LEFT, RIGHT = 0, 1


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
  row = row_T[:, None]
  exists = keys.segment >= 0

  def one_line(k, bias):
    take = lambda x: jax.lax.dynamic_index_in_dim(x, k, -1, False)[
      ..., None, None
    ]
    segment, anchor, delta, intercept, value, valid = map(take, lines[:6])
    offset = jnp.where(
      anchor == LEFT, keys.left - delta * row, keys.right + delta * row
    )
    is_open = valid & exists & (keys.segment == segment)
    is_open &= offset == intercept
    return jnp.maximum(bias, jnp.where(is_open, value, CLOSED))

  shape = lines.transparent.shape + (row_T.shape[0], exists.shape[0])
  lines = SiteLines(*map(jnp.asarray, lines))
  closed = jnp.full(shape, CLOSED, jnp.float32)
  bias = jax.lax.fori_loop(0, lines.value.shape[-1], one_line, closed)
  transparent = lines.transparent[..., None, None] & exists
  return jnp.where(transparent, jnp.maximum(bias, 0.0), bias)
