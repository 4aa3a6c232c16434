"""What is measured of a model on a test: functions that yield rows."""

import numpy as np
from scipy import special


def accuracy(model, test) -> list[dict]:
  """Exact match, and token accuracy with the truth for all tokens before.

  Args:
    model: has `batches(test)` and `hits(batch)`.
    test: what `batches` takes.

  Returns:
    Rows without their conditions.
  """
  token, exact = [], []
  for batch, count in model.batches(test):
    right, whole = model.hits(batch)
    wanted = np.asarray(batch.weight) > 0
    right = np.asarray(right)[wanted].reshape(len(wanted), -1)
    token.append(right[:count])
    exact.append(np.asarray(whole)[:count])
  token, exact = np.concatenate(token), np.concatenate(exact)
  return [
    counted("em", exact.sum(), len(exact)),
    counted("token", token.sum(), token.size, teacher_forced=True),
    by_position(token),
  ]


def free_running(model, test) -> list[dict]:
  """Edit distance per token of the truth and, where there is an end token,
  end-blind exact match; both of decoded outputs.

  End-blind is the released ABC program's metric: rows are decoded to the
  target's length whatever they say, every end token is deleted, and zeros in
  front of the number are forgiven.
  """
  end, pairs = model.experiment.task.end, []
  for batch, count in model.batches(test):
    wanted = np.asarray(batch.weight) > 0
    truth = np.asarray(batch.target)[wanted].reshape(len(wanted), -1)
    told = model.greedy(batch, stop=None)[:, : truth.shape[1]]
    pairs += zip(told[:count], truth[:count], strict=True)
  texts = [
    (until_end(said, end), until_end(meant, end)) for said, meant in pairs
  ]
  distance = sum(edit_distance(said, meant) for said, meant in texts)
  length = sum(len(meant) for _, meant in texts)
  rows = [measured("edit", distance / length, len(pairs))]
  if end is not None:
    blind = sum(_number(s, end) == _number(meant, end) for s, meant in pairs)
    rows.append(counted("em_end_blind", blind, len(pairs)))
  return rows


# By name; what `eval` asks for is a choice of them.
MEASURES = {"accuracy": accuracy, "free_running": free_running}


def frontier(model, test, rows: list[dict]) -> dict:
  """The longest length up to which exact match is at least COMPLETE, by its
  lower bound at every length that was tried; 0 if there is none.

  Lengths are doubled from the training length on until one fails, then the
  interval is halved. Where exact match is not monotone, the first failure
  that was seen counts.

  Args:
    model: as in `accuracy`.
    test: its length is how far to look, its samples those of every length.
    rows: what is known: exact match of the same samples or more of them counts
      and is not measured again.

  Returns:
    A row without its conditions; the value is a length.
  """
  tried = {
    row["length"]: (row["correct"], row["n"])
    for row in rows
    if row["metric"] == "em"
    and row["test_set"] == test.name
    and row["n"] >= test.samples
    and row["length"] <= test.length
  }

  def holds(length: int) -> bool:
    if length not in tried:
      tried[length] = _first_wrong(model, test._replace(length=length))
    return lower_bound(*tried[length]) >= COMPLETE

  found = longest_before(
    holds, model.experiment.train_length, test.length, list(tried)
  )
  row = measured("frontier", found, test.samples)
  counts = [[n, *map(int, tried[n])] for n in sorted(tried)]
  return row | {"bound": test.length, "tried": counts}


COMPLETE = 0.99  # exact match of complete generalization (ABS paper, section 2)


def _first_wrong(model, test) -> tuple[int, int]:
  """(correct, n) of a test, which ends with the first batch in which so many
  are wrong that COMPLETE is out of reach."""
  correct = n = 0
  for batch, count in model.batches(test):
    correct += int(np.asarray(model.hits(batch)[1])[:count].sum())
    n += count
    if lower_bound(test.samples - n + correct, test.samples) < COMPLETE:
      break
  return correct, n


def longest_before(holds, first: int, bound: int, known) -> int:
  """The last length before the first one that does not hold.

  Args:
    holds: says of a length whether it does.
    first: where to begin.
    bound: the last length that is asked for.
    known: lengths whose answer costs nothing.
  """
  asked, rungs = {n: holds(n) for n in known}, [min(first, bound)]
  while rungs[-1] < bound:
    rungs.append(min(2 * rungs[-1], bound))
  for length in rungs:
    if all(asked[n] for n in asked if n < length):
      asked[length] = holds(length)
  high = min([n for n in asked if not asked[n]], default=bound + 1)
  low = max([n for n in asked if n < high], default=0)
  while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if holds(middle) else (low, middle)
  return low


def _number(tokens, end: int) -> list[int]:
  """Digits of a reversed number without end tokens and leading zeros."""
  return np.trim_zeros([int(t) for t in tokens if t != end], "b")


# Rows from what was measured.


def counted(metric: str, correct, n, teacher_forced=False) -> dict:
  """A row of `correct` out of n, with its lower bound if they are samples."""
  correct, n = int(correct), int(n)
  bound = None if teacher_forced else lower_bound(correct, n)
  row = measured(metric, correct / n, n, teacher_forced)
  return row | {"correct": correct, "lower_bound": bound}


def measured(metric: str, value, n, teacher_forced=False) -> dict:
  """A row of a mean over n samples that is no rate of success."""
  return {
    "metric": metric,
    "teacher_forced": teacher_forced,
    "n": n,
    "correct": None,
    "value": float(value),
    "lower_bound": None,
  }


def by_position(token_BxT) -> dict:
  """The worst output position's accuracy, and every one's; `token_BxT` says
  whether each output token is right."""
  rates = np.asarray(token_BxT).mean(axis=0)
  row = measured("position", rates.min(), len(token_BxT), True)
  return row | {"by_position": [round(float(x), 6) for x in rates]}


# Bounds and distances.


def lower_bound(correct: int, n: int, confidence: float = 0.95) -> float:
  """One-sided Clopper-Pearson lower bound of a success rate."""
  if correct == 0:
    return 0.0
  return float(special.betaincinv(correct, n - correct + 1, 1.0 - confidence))


def until_end(tokens, end: int | None) -> list[int]:
  """The tokens before the first end token; all if there is none."""
  tokens = list(map(int, tokens))
  return tokens[: tokens.index(end)] if end in tokens else tokens


def edit_distance(first, second) -> int:
  """Levenshtein distance of two sequences."""
  second = np.asarray(second)
  row = np.arange(len(second) + 1)
  for i, item in enumerate(first):
    best = np.minimum(row[1:] + 1, row[:-1] + (second != item))
    best = np.concatenate([[i + 1], best])
    # Insertions run along the row: min over k <= j of best[k] + (j - k).
    steps = np.arange(len(best))
    row = np.minimum.accumulate(best - steps) + steps
  return int(row[-1])
