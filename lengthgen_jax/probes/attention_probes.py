"""Probes of attention: shares on some keys, and entropies.

Shares and entropies of numbers are means over the rows of the output's digits
at places where the operands have digits too: a last carry, leading zeros and
the end token `&` are left out. Shares on copies are means over the rows whose
inputs are outputs. Heads that attend to nothing have no mean.
"""

from collections.abc import Iterator

import numpy as np
from scipy import special

from lengthgen_jax.probes.activations import Mean, Observation

# The place of a key without a digit: neither a row's place nor one less.
NO_PLACE = -9


def same_place(observation: Observation) -> Iterator[Mean]:
  """Yields the share of attention on the operands' digits at the row's place.

  A digit that all places share (N×1's multiplier) counts for every row. With
  bias.allow_leak the output at the row's place counts too.
  """
  return _shares(observation, 0)


def carry(observation: Observation) -> Iterator[Mean]:
  """Yields the share of attention on what the carry follows from: the operands'
  digits and the output at the place before the row's, which the first row does
  not have."""
  return _shares(observation, 1)


def entropy(observation: Observation) -> Iterator[Mean]:
  """Yields the entropy of a row's attention, in nats; 0 on a single key."""
  rows, _ = _answer_rows(observation)
  for site, layer, weights in observation.attention():
    weights = weights[:, :, rows]
    yield from _by_head(special.entr(weights).sum(-1), weights, site, layer)


def prompt_copies(observation: Observation) -> Iterator[Mean]:
  """Yields the share of attention on copies of the row's item (its input, an
  output) in the prompt.

  Together with `output_copies` it tells which heads can see how many copies of
  an item are left.
  """
  return _copies(observation, slice(observation.length))


def output_copies(observation: Observation) -> Iterator[Mean]:
  """Yields the share of attention on copies of the row's item in the outputs,
  its own input among them."""
  n = observation.length
  return _copies(observation, slice(n + 1, 2 * n))


def _copies(observation: Observation, keys: slice) -> Iterator[Mean]:
  rows = slice(observation.length + 1, 2 * observation.length)
  inputs = observation.batch.inputs[: observation.count]
  is_copy = inputs[:, None, rows, None] == inputs[:, None, None, keys]
  for site, layer, weights in observation.attention():
    weights = weights[:, :, rows]
    shares = (weights[..., keys] * is_copy).sum(axis=-1)
    yield from _by_head(shares, weights, site, layer)


def _shares(observation: Observation, back: int) -> Iterator[Mean]:
  """Yields the share of attention on the keys whose place is `back` places
  before the row's. Rows without such a place do not count, and digits that all
  places share are at the row's own."""
  rows, row_places = _answer_rows(observation, back)
  for site, layer, weights in observation.attention():
    key_places, is_shared = _key_places(observation, site)
    mask = key_places == row_places[:, None] - back
    mask = np.where(is_shared, back == 0, mask)
    weights = weights[:, :, rows]
    yield from _by_head((weights * mask).sum(axis=-1), weights, site, layer)


def _by_head(
  values: np.ndarray, weights: np.ndarray, site: str, layer: int
) -> Iterator[Mean]:
  """Yields the mean of values [B, H, T] for each head that attends to
  something, that is, whose weights [B, H, T, S] are not all 0."""
  for head in range(values.shape[1]):
    if weights[:, head].any():
      example_means = values[:, head].mean(axis=-1)
      yield Mean(example_means.sum(), len(example_means), site, layer, head)


def _answer_rows(
  observation: Observation, first: int = 0
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the indices of the rows that count, and the place of each."""
  rows, task = observation.batch.rows, observation.task
  places = np.asarray(rows.left[0, :, 0])
  is_counted = rows.segment[0] == task.target_segment
  is_counted &= (first <= places) & (places < observation.length)
  return np.flatnonzero(is_counted), places[is_counted]


def _key_places(
  observation: Observation, site: str
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the place [S] of the digit that each key holds (NO_PLACE if it
  holds none), and whether all places share that digit, [S]."""
  task, keys = observation.task, observation.keys(site)
  places = np.full(len(keys.index), NO_PLACE)
  is_shared = np.zeros(len(keys.index), bool)
  for key, segment in enumerate(keys.segment[0].tolist()):
    left, right = int(keys.left[0, key, 0]), int(keys.right[0, key, 0])
    if segment == task.target_segment:
      places[key] = left
    elif 0 <= segment < task.target_segment:
      digit = task.operand_place(segment, left, right)
      if digit is not None:
        operand, places[key] = digit
        is_shared[key] = operand not in task.long_operands
  return places, is_shared
