"""This module measures a model on a test set; results are rows.

The caller adds the conditions of the rows (`records.Conditions`): the task, the
method, the length and so on.
"""

import bisect
from collections.abc import Sequence

import numpy as np
from scipy import special

from lengthgen_jax.evaluation.trained import EvalSpec, Model, scored

# The exact match that counts as complete generalization (ABS paper, section 2).
COMPLETE_EM = 0.99


def test_rows(
  model: Model, spec: EvalSpec, free_running: bool = False
) -> list[dict]:
  """Returns the row of exact match, from `Model.matches`; and `free_running`
  those of `free_running_rows`.

  For the latter only samples that are wrong are decoded: if every output is
  right after the right outputs before it, greedy decoding gives the target.
  """
  exact_batches, target_batches = [], []
  for batch, count in model.batches(spec):
    exact_batches.append(np.asarray(model.matches(batch))[:count])
    target_batches.append(scored(batch, batch.target)[:count])
  exact = np.concatenate(exact_batches)
  rows = [success_row("em", exact.sum(), len(exact))]
  if free_running:
    targets = np.concatenate(target_batches)
    outputs, wrong = targets.copy(), np.flatnonzero(~exact)
    decoded = [
      model.greedy(batch, stop=None)[:count]
      for batch, count in model.batches(spec, wrong)
    ]
    if decoded:
      outputs[wrong] = np.concatenate(decoded)[:, : targets.shape[1]]
    rows += free_running_rows(outputs, targets, model.experiment.task.end)
  return rows


def free_running_rows(
  outputs: np.ndarray, targets: np.ndarray, end: int | None
) -> list[dict]:
  """Returns rows of the edit distance and, if the task has an end token, the
  end-blind exact match of greedy decoding.

  Outputs and targets [n, O] are cut before their first end token, and the sum
  of their edit distances is divided by the number of tokens of the targets.
  End-blind exact match is the metric of the released ABC program: outputs are
  decoded to the length of the target, and end tokens and leading zeros (in a
  grid, those of the last row alone) are removed before the two are compared.
  """
  distance = length = correct = 0
  for output, target in zip(outputs.tolist(), targets.tolist(), strict=True):
    ended_target = tokens_before_end(target, end)
    distance += edit_distance(tokens_before_end(output, end), ended_target)
    length += len(ended_target)
    correct += _digits(output, end) == _digits(target, end)
  rows = [value_row("edit", distance / length, len(targets))]
  if end is not None:
    rows.append(success_row("em_end_blind", correct, len(targets)))
  return rows


def frontier(model: Model, spec: EvalSpec, rows: list[dict]) -> dict:
  """Returns the row of the frontier: the greatest length up to which a model is
  right, 0 if it is not right at length 1.

  At that length and at every shorter one that was tried, the lower bound of
  exact match is at least COMPLETE_EM. From the training length on, lengths are
  doubled until one fails, then the interval is bisected.

  Args:
    model: the model.
    spec: the test set; its length is the greatest one to try, and its samples
      are the number at each length.
    rows: earlier rows of the model; exact match on at least as many samples is
      taken from them instead of being measured again.
  """
  tried = {
    row["length"]: (row["correct"], row["n"])
    for row in rows
    if row["metric"] == "em"
    and row["test_set"] == spec.name
    and row["n"] >= spec.samples
    and row["length"] <= spec.length
  }

  def fails(length: int) -> bool:
    if length not in tried:
      tried[length] = _exact_counts(model, spec._replace(length=length))
    return lower_bound(*tried[length]) < COMPLETE_EM

  lengths = [min(model.experiment.train_length, spec.length)]
  while lengths[-1] < spec.length:
    lengths.append(min(2 * lengths[-1], spec.length))
  # What is known costs nothing, and a failure keeps longer ones from a test.
  lengths = sorted({*lengths, *tried})
  failure = next(filter(fails, lengths), spec.length + 1)
  success = max((x for x in lengths if x < failure), default=0)
  between = range(success + 1, failure)
  longest = success + bisect.bisect_left(between, True, key=fails)
  row = value_row("frontier", longest, spec.samples)
  counts = [[length, *map(int, tried[length])] for length in sorted(tried)]
  return row | {"bound": spec.length, "tried": counts}


def _exact_counts(model: Model, spec: EvalSpec) -> tuple[int, int]:
  """Returns (correct, n) of a test, which is cut short once the lower bound of
  exact match cannot reach COMPLETE_EM."""
  correct = n = 0
  for batch, count in model.batches(spec):
    correct += int(np.asarray(model.matches(batch))[:count].sum())
    n += count
    if lower_bound(spec.samples - n + correct, spec.samples) < COMPLETE_EM:
      break
  return correct, n


def _digits(tokens: list[int], end: int | None) -> list[int]:
  """Returns a number's digits, the least significant first, without end tokens
  and leading zeros."""
  return np.trim_zeros([token for token in tokens if token != end], "b")


# Result rows.


def success_row(metric: str, correct: int, n: int) -> dict:
  correct, n = int(correct), int(n)
  row = value_row(metric, correct / n, n)
  return row | {"correct": correct, "lower_bound": lower_bound(correct, n)}


def value_row(metric: str, value: float, n: int) -> dict:
  """Returns the row of a metric's value, without a lower bound.

  Args:
    metric, value: the metric and its value.
    n: how many samples it was measured on; of "frontier", how many are asked
      for at each length, and of a probe, how many values its mean is over
      (`Mean.count`).
  """
  return {
    "metric": metric,
    "n": n,
    "correct": None,
    "value": float(value),
    "lower_bound": None,
  }


# Bounds and distances.


def lower_bound(correct: int, n: int) -> float:
  """Returns the one-sided 95 % Clopper-Pearson lower bound of a success
  rate."""
  if correct == 0:
    return 0.0
  return float(special.betaincinv(correct, n - correct + 1, 1.0 - 0.95))


def tokens_before_end(tokens: list[int], end: int | None) -> list[int]:
  return tokens[: tokens.index(end)] if end in tokens else tokens


def edit_distance(first: Sequence[int], second: Sequence[int]) -> int:
  """Returns the Levenshtein distance of two sequences."""
  # After i items of `first`, distances[j] is the distance to second[:j].
  distances = columns = np.arange(len(second) + 1)
  for i, item in enumerate(first):
    deleted = distances[1:] + 1
    substituted = distances[:-1] + (np.asarray(second) != item)
    # The distances if the last edit is no insertion.
    not_inserted = np.concatenate([[i + 1], np.minimum(deleted, substituted)])
    # If the last j - k edits are insertions, the distance to second[:j] is
    # not_inserted[k] + j - k; the minimum over all k <= j counts.
    distances = np.minimum.accumulate(not_inserted - columns) + columns
  return int(distances[-1])
