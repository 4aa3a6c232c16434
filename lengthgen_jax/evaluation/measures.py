"""Measures of a model on a test, as result rows without their conditions."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from scipy import special

from lengthgen_jax.evaluation.trained import EvalSpec, Model


def accuracy(model: Model, spec: EvalSpec) -> list[dict]:
  """Measures exact match, and token accuracy under teacher forcing.

  Args:
    model: only its `batches` and `hits` are used.
    spec: of the test.

  Returns:
    Rows without their conditions.
  """
  token, exact = [], []
  for batch, count in model.batches(spec):
    right, exact_rows = model.hits(batch)
    scored = np.asarray(batch.weight) > 0
    right = np.asarray(right)[scored].reshape(len(scored), -1)
    token.append(right[:count])
    exact.append(np.asarray(exact_rows)[:count])
  token, exact = np.concatenate(token), np.concatenate(exact)
  return [
    counted("em", exact.sum(), len(exact)),
    counted("token", token.sum(), token.size, teacher_forced=True),
    by_position(token),
  ]


def free_running(model: Model, spec: EvalSpec) -> list[dict]:
  """Measures edit distance and end-blind exact match of decoded outputs.

  Edit distance is per token of the target. End-blind exact match, measured
  where the task has an end token, is the metric of the released ABC program:
  outputs are decoded to the length of the target, every end token is deleted,
  and leading zeros of the number do not count.

  Returns:
    Rows without their conditions.
  """
  end, pairs = model.experiment.task.end, []
  for batch, count in model.batches(spec):
    scored = np.asarray(batch.weight) > 0
    truth = np.asarray(batch.target)[scored].reshape(len(scored), -1)
    outputs = model.greedy(batch, stop=None)[:, : truth.shape[1]]
    pairs += zip(outputs[:count], truth[:count], strict=True)
  texts = [
    (until_end(output, end), until_end(target, end)) for output, target in pairs
  ]
  distance = sum(edit_distance(output, target) for output, target in texts)
  length = sum(len(target) for _, target in texts)
  rows = [measured("edit", distance / length, len(pairs))]
  if end is not None:
    correct = sum(
      _number(tokens, end) == _number(target, end) for tokens, target in pairs
    )
    rows.append(counted("em_end_blind", correct, len(pairs)))
  return rows


# Measures by name; the config section `eval` chooses some of them.
MEASURES = {"accuracy": accuracy, "free_running": free_running}


def frontier(model: Model, spec: EvalSpec, rows: list[dict]) -> dict:
  """Measures the longest length up to which a model is right.

  At that length and at every shorter one that was tried the lower bound of
  exact match is at least COMPLETE. Lengths are doubled from the training length
  on until one fails, then the interval is halved. Where exact match is not
  monotone, the first failure that was seen counts.

  Args:
    model: as in `accuracy`.
    spec: its length is the greatest one to try, its samples those per length.
    rows: rows measured before: exact match of the same samples, or of more of
      them, is taken from there and not measured again.

  Returns:
    A row without its conditions; the value is a length, 0 if there is none.
  """
  tried = {
    row["length"]: (row["correct"], row["n"])
    for row in rows
    if row["metric"] == "em"
    and row["test_set"] == spec.name
    and row["n"] >= spec.samples
    and row["length"] <= spec.length
  }

  def holds(length: int) -> bool:
    """Returns whether the model is right at a length, and remembers it."""
    if length not in tried:
      tried[length] = _exact_counts(model, spec._replace(length=length))
    return lower_bound(*tried[length]) >= COMPLETE

  longest = longest_before(
    holds, model.experiment.train_length, spec.length, list(tried)
  )
  row = measured("frontier", longest, spec.samples)
  counts = [[n, *map(int, tried[n])] for n in sorted(tried)]
  return row | {"bound": spec.length, "tried": counts}


COMPLETE = 0.99  # exact match of complete generalization (ABS paper, section 2)


def _exact_counts(model: Model, spec: EvalSpec) -> tuple[int, int]:
  """Returns (correct, n) of a test.

  The test ends with the first batch after which so many samples are wrong that
  COMPLETE is out of reach.
  """
  correct = n = 0
  for batch, count in model.batches(spec):
    correct += int(np.asarray(model.hits(batch)[1])[:count].sum())
    n += count
    if lower_bound(spec.samples - n + correct, spec.samples) < COMPLETE:
      break
  return correct, n


def longest_before(
  holds: Callable[[int], bool], first: int, bound: int, known: Iterable[int]
) -> int:
  """Returns the last length before the first one at which a condition fails.

  Args:
    holds: returns whether the condition holds at a length.
    first: the length at which the search begins.
    bound: the greatest length that is tried.
    known: lengths at which `holds` costs nothing.

  Returns:
    A length, 0 if the condition fails at the least one that was tried.
  """
  results, lengths = {n: holds(n) for n in known}, [min(first, bound)]
  while lengths[-1] < bound:
    lengths.append(min(2 * lengths[-1], bound))
  for length in lengths:
    if all(results[n] for n in results if n < length):
      results[length] = holds(length)
  high = min([n for n in results if not results[n]], default=bound + 1)
  low = max([n for n in results if n < high], default=0)
  while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if holds(middle) else (low, middle)
  return low


def _number(tokens: Iterable[int], end: int) -> list[int]:
  """Returns a reversed number's digits without end tokens and leading zeros."""
  return np.trim_zeros([int(t) for t in tokens if t != end], "b")


# Rows of measured values.


def counted(
  metric: str, correct: int, n: int, teacher_forced: bool = False
) -> dict:
  """Returns a row of `correct` out of n.

  The row has a lower bound unless it is teacher-forced: tokens of one output
  are no independent samples.
  """
  correct, n = int(correct), int(n)
  bound = None if teacher_forced else lower_bound(correct, n)
  row = measured(metric, correct / n, n, teacher_forced)
  return row | {"correct": correct, "lower_bound": bound}


def measured(
  metric: str, value: float, n: int, teacher_forced: bool = False
) -> dict:
  """Returns a row of a value over n samples that is no rate of success."""
  return {
    "metric": metric,
    "teacher_forced": teacher_forced,
    "n": n,
    "correct": None,
    "value": float(value),
    "lower_bound": None,
  }


def by_position(token_BxT: np.ndarray) -> dict:
  """Returns a row of the accuracy at the worst output position and at each.

  Args:
    token_BxT: whether each output token is right.
  """
  rates = np.asarray(token_BxT).mean(axis=0)
  row = measured("position", rates.min(), len(token_BxT), True)
  return row | {"by_position": [round(float(x), 6) for x in rates]}


# Bounds and distances.


def lower_bound(correct: int, n: int, confidence: float = 0.95) -> float:
  """Returns the one-sided Clopper-Pearson lower bound of a success rate."""
  if correct == 0:
    return 0.0
  return float(special.betaincinv(correct, n - correct + 1, 1.0 - confidence))


def until_end(tokens: Iterable[int], end: int | None) -> list[int]:
  """Returns the tokens before the first end token, all if there is none."""
  tokens = list(map(int, tokens))
  return tokens[: tokens.index(end)] if end in tokens else tokens


def edit_distance(first: Sequence[int], second: Sequence[int]) -> int:
  """Returns the Levenshtein distance of two sequences."""
  row = np.arange(len(second) + 1)
  for i, item in enumerate(first):
    best = np.minimum(row[1:] + 1, row[:-1] + (np.asarray(second) != item))
    best = np.concatenate([[i + 1], best])
    # Insertions run along the row: min over k <= j of best[k] + (j - k).
    steps = np.arange(len(best))
    row = np.minimum.accumulate(best - steps) + steps
  return int(row[-1])
