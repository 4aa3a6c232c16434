"""Probes of attention: shares on some keys, entropies, the strongest lines.

For tasks on numbers, the rows that count are those of the answer's digits that
have digits of the operands at their place; the end mark `&` and leading zeros
are left out. Heads that attend to nothing are left out for all tasks.
"""

from collections.abc import Callable, Iterator

import numpy as np

from lengthgen_jax.probes.activations import Mean, Seen


def own_digits(seen: Seen) -> Iterator[Mean]:
  """Yields the share of attention on the row's own digits of the operands.

  A digit that all places share counts as every row's own.
  """
  yield from _shares(seen, lambda place, row: place == row)


def carry_source(seen: Seen) -> Iterator[Mean]:
  """Yields the share of attention on what the carry follows from.

  These are the digits of the place before the row's own, and the output before.
  The first row has none, and does not count.
  """
  yield from _shares(seen, lambda place, row: place == row - 1, first=1)


def entropy(seen: Seen) -> Iterator[Mean]:
  """Yields the mean entropy of a row's attention, in nats.

  It is 0 where a row attends to a single key.
  """
  rows, _ = _rows(seen, 0)
  for site, layer, weights in seen.attention():
    row_weights = weights[:, :, rows]
    entropies = -np.where(
      row_weights > 0, row_weights * np.log(np.maximum(row_weights, 1e-30)), 0.0
    ).sum(-1)
    yield from _by_head(entropies, row_weights, site, layer)


def strongest_line(seen: Seen) -> Iterator[Mean]:
  """Yields the z-score of each head's strongest line.

  It tells how ready a head is for calibration, which keeps the lines whose
  score is above calibration.kappa.
  """
  for site, (lines, selection) in seen.lines().items():
    names = seen.experiment.site_segments[site]
    score = np.where(selection.keep, selection.score, -np.inf)
    for layer, head in np.argwhere(selection.keep.any(axis=-1)):
      best = int(score[layer, head].argmax())
      words = lines.take(best).describe(names)
      yield Mean(
        score[layer, head, best], 1, site, int(layer), int(head), words
      )


def copies_given(seen: Seen) -> Iterator[Mean]:
  """Yields the share of attention on copies of the row's item in the prompt.

  The rows are those that hold outputs. Together with `copies_said` it tells
  where sorting reads how many copies of an item are left.
  """
  yield from _copies(seen, slice(seen.length))


def copies_said(seen: Seen) -> Iterator[Mean]:
  """Yields the share of attention on copies of the row's item in the outputs.

  The rows are those that hold outputs; a row itself is among the copies.
  """
  yield from _copies(seen, slice(seen.length + 1, 2 * seen.length))


def _copies(seen: Seen, keys: slice) -> Iterator[Mean]:
  """Yields the share of attention on `keys` that hold what the row holds."""
  rows = slice(seen.length + 1, 2 * seen.length)
  held = np.asarray(seen.at.inputs[: seen.count])
  is_copy = held[:, None, rows, None] == held[:, None, None, keys]
  for site, layer, weights in seen.attention():
    row_weights = weights[:, :, rows]
    yield from _by_head(
      (row_weights[..., keys] * is_copy).sum(axis=-1), row_weights, site, layer
    )


def _shares(seen: Seen, is_wanted: Callable, first: int = 0) -> Iterator[Mean]:
  """Yields the share of attention on the keys whose place is wanted.

  Args:
    seen: a model on a batch of numbers.
    is_wanted: a function of (key's place, row's place); for digits that all
      places share it is called with (0, 0).
    first: the least place of a row that counts.
  """
  rows, row = _rows(seen, first)
  for site, layer, weights in seen.attention():
    place, shared = _places(seen, site)
    mask = is_wanted(place, row[:, None])
    mask = np.where(shared, is_wanted(0, 0), mask)
    row_weights = weights[:, :, rows]
    yield from _by_head(
      (row_weights * mask).sum(axis=-1), row_weights, site, layer
    )


def _by_head(
  values: np.ndarray, weights: np.ndarray, site: str, layer: int
) -> Iterator[Mean]:
  """Yields the means of values [B, H, T] for the heads that see something."""
  for head in range(values.shape[1]):
    if values.size and weights[:, head].any():
      example_means = values[:, head].mean(axis=-1)
      yield Mean(example_means.sum(), len(example_means), site, layer, head)


def _rows(seen: Seen, first: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns the numbers of the rows that count, and the place of each."""
  rows = seen.at.rows
  left = rows.left[0, :, 0]
  is_counted = (rows.segment[0] == seen.task.target_segment) & (
    left < seen.length
  )
  numbers = np.flatnonzero(is_counted & (left >= first))
  return numbers, left[numbers]


def _places(seen: Seen, site: str) -> tuple[np.ndarray, np.ndarray]:
  """Returns the place [S] of the digit that each key holds (-9 for a mark).

  The second array [S] says whether all places share that digit.
  """
  task = seen.task
  keys = seen.at.keys if site == "self" else seen.at.source_keys
  place = np.full(len(keys.index), -9)
  shared = np.zeros(len(keys.index), bool)
  for key, segment in enumerate(keys.segment[0]):
    left, right = int(keys.left[0, key, 0]), int(keys.right[0, key, 0])
    if segment == task.target_segment:
      place[key] = left
    elif 0 <= segment < task.target_segment:
      held = task.operand_place(int(segment), left, right)
      if held is not None:
        place[key], shared[key] = held[1], held[0] in task.shared_operands
  return place, shared
