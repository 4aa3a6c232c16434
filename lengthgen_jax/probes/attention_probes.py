"""Where a model looks: shares, entropies, its strongest lines.

In models of numbers rows are those of the answer's digits that have digits of
the operands beside them; `&` and leading zeros are left out. Heads that see
nothing are too.
"""

import numpy as np

from lengthgen_jax.attention.candidates import phrase
from lengthgen_jax.probes.activations import Mean, Seen


def own_digits(seen: Seen):
  """Share of attention on the row's own digits of the operands (a digit that
  all places share is everybody's own)."""
  yield from _shares(seen, lambda place, row: place == row)


def carry_source(seen: Seen):
  """Share of attention on what the carry follows from: the digits before the
  row's own, and the output before. The first row has none."""
  yield from _shares(seen, lambda place, row: place == row - 1, first=1)


def entropy(seen: Seen):
  """Mean entropy of the attention of a row, in nats: 0 is one key."""
  rows, _ = _rows(seen, 0)
  for site, layer, weights in seen.attention():
    w = weights[:, :, rows]
    found = -np.where(w > 0, w * np.log(np.maximum(w, 1e-30)), 0.0).sum(-1)
    yield from _by_head(found, w, site, layer)


def strongest_line(seen: Seen):
  """The z-score of each head's strongest line: how ready it is for calibration,
  which keeps those above calibration.kappa."""
  for site, (tested, verdict) in seen.lines().items():
    names = seen.experiment.site_segments[site]
    score = np.where(verdict.keep, verdict.score, -np.inf)
    for n, h in np.argwhere(verdict.keep.any(axis=-1)):
      c = int(score[n, h].argmax())
      words = phrase([column[c] for column in tested], names)
      yield Mean(score[n, h, c], 1, site, int(n), int(h), words)


def copies_given(seen: Seen):
  """Where sorting reads the count from: the share of attention, in rows that
  hold outputs, on the row's item in the prompt."""
  yield from _copies(seen, slice(seen.length))


def copies_said(seen: Seen):
  """The same on the row's item among the outputs, itself included."""
  yield from _copies(seen, slice(seen.length + 1, 2 * seen.length))


def _copies(seen: Seen, keys: slice):
  """Shares on keys that hold what the row holds."""
  rows = slice(seen.length + 1, 2 * seen.length)
  held = np.asarray(seen.at.inputs[: seen.count])
  same = held[:, None, rows, None] == held[:, None, None, keys]
  for site, layer, weights in seen.attention():
    w = weights[:, :, rows]
    yield from _by_head((w[..., keys] * same).sum(axis=-1), w, site, layer)


def _shares(seen: Seen, wanted, first: int = 0):
  """Shares on keys whose place, seen from the row's, is wanted."""
  rows, row = _rows(seen, first)
  for site, layer, weights in seen.attention():
    place, shared = _places(seen, site)
    mask = wanted(place, row[:, None])
    mask = np.where(shared, wanted(0, 0), mask)
    w = weights[:, :, rows]
    yield from _by_head((w * mask).sum(axis=-1), w, site, layer)


def _by_head(found, weights, site: str, layer: int):
  """Means of [B, H, T] for every head that sees something."""
  for h in range(found.shape[1]):
    if found.size and weights[:, h].any():
      own = found[:, h].mean(axis=-1)
      yield Mean(own.sum(), len(own), site, layer, h)


def _rows(seen: Seen, first: int):
  """Which rows count, and the digit that each must say."""
  rows = seen.at.rows
  left = rows.left[0, :, 0]
  counted = (rows.segment[0] == seen.task.target) & (left < seen.length)
  where = np.flatnonzero(counted & (left >= first))
  return where, left[where]


def _places(seen: Seen, site: str):
  """Place [S] of the digit that each key holds (-9 for a mark), and whether
  all places share it."""
  task = seen.task
  keys = seen.at.keys if site == "self" else seen.at.source_keys
  place = np.full(len(keys.index), -9)
  shared = np.zeros(len(keys.index), bool)
  for s, segment in enumerate(keys.segment[0]):
    left, right = int(keys.left[0, s, 0]), int(keys.right[0, s, 0])
    if segment == task.target:
      place[s] = left
    elif 0 <= segment < task.target:
      held = task.holds(int(segment), left, right)
      if held is not None:
        place[s], shared[s] = held[1], held[0] in task.shared
  return place, shared
