"""This module computes coordinates, lines and the cells that lines open in
plain Python, for tests to compare with.

Shapes: B examples, L tokens, T rows, S keys, R seeds, N layers, H heads, K
lines of a head.
"""

import itertools

import numpy as np
from pytrees import one

from lengthgen_jax.attention.lines import ANY, LEFT, WHOLE, SiteLines
from lengthgen_jax.coordinates import PAD, Coordinates

INF = float("inf")


def tokens(*runs) -> list:
  """Returns (segment, left, right) of every token of one example.

  `left` and `right` are tuples, an offset by axis.

  Args:
    *runs: (segment, its size along each axis) of each segment, in order.
  """
  return [
    (segment, place, tuple(n - 1 - i for n, i in zip(size, place, strict=True)))
    for segment, *size in runs
    for place in itertools.product(*map(range, size))
  ]


def places(*examples) -> Coordinates:
  """Returns the Coordinates [B, L] of examples, lists that `tokens` returns;
  the shorter ones end with PAD."""
  axes = len(examples[0][0][1])
  longest = max(map(len, examples))
  padding = (PAD, (7,) * axes, (-3,) * axes)  # its offsets mean nothing
  filled = [list(x) + [padding] * (longest - len(x)) for x in examples]
  part = lambda i: np.array([[t[i] for t in x] for x in filled], np.int32)
  return Coordinates(part(0), part(1), part(2), np.arange(longest))


def packed(*examples):
  """Returns the Coordinates of rows and of keys of sequences in which each row
  says the next token; the arguments are as in `places`."""
  return (
    places(*(x[1:] for x in examples)),
    places(*(x[:-1] for x in examples)),
  )


def site_line(row_segment, segment, anchor, matrix, intercept) -> SiteLines:
  """Returns SiteLines [1, 1, 1, 1] with one line, of value 0."""
  matrix = np.atleast_2d(matrix)
  one = lambda x, *shape: np.reshape(np.int32(x), (1, 1, 1, 1, *shape))
  return SiteLines(
    one(row_segment),
    one(segment),
    one(anchor),
    one(matrix, *matrix.shape),
    one(intercept, len(matrix)),
    value=np.zeros((1, 1, 1, 1), np.float32),
    valid=np.ones((1, 1, 1, 1), bool),
    transparent=np.zeros((1, 1, 1), bool),
  )


def planted(lines, rows, keys, noise):
  """Returns attention [1, H, T, S] of a head for each of some lines, arguments
  of `site_line`: 0.9 on the line, noise elsewhere."""
  on_line = [opened(one(site_line(*x)), rows, keys)[0, 0, 0] for x in lines]
  cells = np.stack(on_line)[None] == 0
  return np.where(cells, 0.9, noise.uniform(0, 0.05, cells.shape)).astype("f4")


def random_lines(seed, shape, axes, segments, ends=(), rows=(ANY,)):
  """Returns random SiteLines, some of which cross each other.

  Args:
    seed: the seed of the random numbers.
    shape: the shape of the fields, (R, N, H, K).
    axes: the number of axes of the coordinates.
    segments: the segments of keys to choose from; WHOLE may be one of them.
    ends: the segments whose right end may be an anchor.
    rows: the segments of rows to choose from.
  """
  rng = np.random.default_rng(seed)
  segment = rng.choice(segments, shape).astype(np.int32)
  anchor = rng.integers(0, 2, shape) * np.isin(segment, ends)
  most = 2 if axes == 1 else 1
  matrix = rng.integers(-most, most + 1, (*shape, axes, axes))
  intercept = rng.integers(-3, 4, (*shape, axes))
  if axes > 1:  # the whole sequence has one axis
    whole = (segment == WHOLE)[..., None]
    intercept[..., 1:] *= ~whole
    matrix[..., 1] *= ~whole
    matrix[..., 1, :] *= ~whole
  return SiteLines(
    row_segment=rng.choice(rows, shape).astype(np.int32),
    segment=segment,
    anchor=anchor.astype(np.int32),
    matrix=matrix.astype(np.int32),
    intercept=intercept.astype(np.int32),
    value=rng.integers(-2, 3, shape).astype(np.float32) / 2,  # many are equal
    valid=rng.random(shape) < 0.8,
    transparent=np.zeros(shape[:-1], bool),
  )


def opened(lines, rows: Coordinates, keys: Coordinates):
  """Returns the bias [N, B, H, T, S] of one seed's lines [N, H, K], computed
  cell by cell."""
  layers, heads, count = lines.value.shape
  batch = len(rows.segment)
  size = (len(rows.index), len(keys.index))
  bias = np.full((layers, batch, heads, *size), -INF, np.float32)
  for n, h, b, t, s in np.ndindex(layers, heads, batch, *size):
    if keys.segment[b, s] == PAD:
      continue
    if lines.transparent[n, h]:
      bias[n, b, h, t, s] = 0.0
      continue
    for k in range(count):
      if lines.valid[n, h, k]:
        line = lines.lines.take((n, h, k))
        if on_line(line, rows, keys, b, t, s):
          cell = bias[n, b, h, t, s]
          bias[n, b, h, t, s] = max(cell, lines.value[n, h, k])
  return bias


def on_line(line, rows, keys, b, t, s) -> bool:
  """Returns whether row t and key s of example b lie on a line, of Lines."""
  row_segment, segment, anchor, matrix, intercept = line
  if rows.segment[b, t] == PAD or row_segment not in (ANY, rows.segment[b, t]):
    return False
  if segment == WHOLE:
    last = int((keys.segment[b] != PAD).sum()) - 1
    offset = s if anchor == LEFT else last - s
    return offset == matrix[0, 0] * t + intercept[0]
  if keys.segment[b, s] != segment:
    return False
  offset = (keys.left if anchor == LEFT else keys.right)[b, s]
  return (offset == matrix @ rows.left[b, t] + intercept).all()


def scattered(values, index, size: int):
  """Returns the matrix [N, B, H, T, S] of a sparse bias.

  It fails if a row has an open key twice.

  Args:
    values, index: [N, B, H, T, K], what SiteLines.gather returns.
    size: S.
  """
  values, index = np.asarray(values), np.asarray(index)
  bias = np.full((*values.shape[:-1], size), -INF, np.float32)
  for place in np.argwhere(values > -INF):
    cell = (*place[:-1], index[tuple(place)])
    assert bias[cell] == -INF, "open twice"
    bias[cell] = values[tuple(place)]
  return bias
