"""Coordinates, lines and the cells that they open, in plain Python."""

import itertools

import numpy as np

from lengthgen_jax.attention.lines import ANY, LEFT, WHOLE, SiteLines
from lengthgen_jax.coordinates import PAD, Coordinates

INF = float("inf")


def tokens(*runs) -> list:
  """(segment, left, right) of every token of runs (segment, size by axis)."""
  return [
    (segment, place, tuple(n - 1 - i for n, i in zip(size, place, strict=True)))
    for segment, *size in runs
    for place in itertools.product(*map(range, size))
  ]


def places(*examples) -> Coordinates:
  """Coordinates [B, L] of tokens of B examples, PAD behind the shorter."""
  axes = len(examples[0][0][1])
  longest = max(map(len, examples))
  padding = (PAD, (7,) * axes, (-3,) * axes)  # its offsets mean nothing
  filled = [list(x) + [padding] * (longest - len(x)) for x in examples]
  part = lambda i: np.array([[t[i] for t in x] for x in filled], np.int32)
  return Coordinates(part(0), part(1), part(2), np.arange(longest))


def packed(*examples):
  """Rows and keys of sequences whose every row says the next token."""
  return (
    places(*(x[1:] for x in examples)),
    places(*(x[:-1] for x in examples)),
  )


def site_line(row_segment, segment, anchor, matrix, intercept) -> SiteLines:
  """One line [1, 1, 1, 1] of value 0."""
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


def random_lines(seed, shape, axes, segments, ends=(), rows=(ANY,)):
  """SiteLines of `shape` (R, N, H, K) that cross each other now and then.

  Args:
    seed: of the random numbers.
    shape: of the fields.
    axes: of the coordinates.
    segments: of keys, WHOLE among them or not.
    ends: those whose right end may be an anchor.
    rows: segments of rows.
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


def one_seed(lines, r=0):
  return type(lines)(*(np.asarray(x)[r] for x in lines))


def opened(lines, rows: Coordinates, keys: Coordinates):
  """The bias [N, B, H, T, S] of one seed's lines [N, H, K], cell by cell."""
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
  """Whether row t and key s of example b lie on a line."""
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
  """Gathered values [N, B, H, T, K] as the matrix [N, B, H, T, S] they are."""
  values, index = np.asarray(values), np.asarray(index)
  bias = np.full((*values.shape[:-1], size), -INF, np.float32)
  for place in np.argwhere(values > -INF):
    cell = (*place[:-1], index[tuple(place)])
    assert bias[cell] == -INF, "open twice"
    bias[cell] = values[tuple(place)]
  return bias
