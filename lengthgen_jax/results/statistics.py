"""Numbers of samples and seeds: bounds, distances, the median, the worst."""

import numpy as np
from scipy import special


def lower_bound(correct: int, n: int, confidence: float = 0.95) -> float:
  """One-sided Clopper-Pearson lower bound of a success rate."""
  if correct == 0:
    return 0.0
  return float(special.betaincinv(correct, n - correct + 1, 1.0 - confidence))


def until_end(tokens, end: int) -> list[int]:
  """The tokens before the first end token."""
  tokens = list(map(int, tokens))
  return tokens[: tokens.index(end)] if end in tokens else tokens


def edit_distance(first, second) -> int:
  """Levenshtein distance of two sequences."""
  second = np.asarray(second)
  row = np.arange(len(second) + 1)
  for i, item in enumerate(first):
    substituted = row[:-1] + (second != item)
    best = np.minimum(row[1:] + 1, substituted)
    best = np.concatenate([[i + 1], best])
    # Insertions run along the row: min over k <= j of best[k] + (j - k).
    steps = np.arange(len(best))
    row = np.minimum.accumulate(best - steps) + steps
  return int(row[-1])


def median(rows: list[dict]) -> float:
  """The median of rows' values, a row per seed."""
  return float(np.median([row["value"] for row in rows]))


def worst(rows: list[dict]) -> dict:
  """The row of the seed with the lowest value."""
  return min(rows, key=lambda row: row["value"])
