"""Result rows from what was measured."""

import numpy as np

from lengthgen_jax.results import statistics


def counted(where: dict, metric: str, correct, n, teacher_forced=False) -> dict:
  """A row of `correct` out of n, with its lower bound if they are samples."""
  correct, n = int(correct), int(n)
  bound = None if teacher_forced else statistics.lower_bound(correct, n)
  return {
    **where,
    "metric": metric,
    "teacher_forced": teacher_forced,
    "n": n,
    "correct": correct,
    "value": correct / n,
    "lower_bound": bound,
  }


def measured(where: dict, metric: str, value, n, teacher_forced=False) -> dict:
  """A row of a mean over n samples that is no rate of success."""
  return {
    **where,
    "metric": metric,
    "teacher_forced": teacher_forced,
    "n": n,
    "correct": None,
    "value": float(value),
    "lower_bound": None,
  }


def by_position(where: dict, token_BxT) -> dict:
  """The worst output position's accuracy, and every one's.

  Args:
    where: the conditions.
    token_BxT: whether each output token is right.
  """
  rates = np.asarray(token_BxT).mean(axis=0)
  row = measured(where, "position", rates.min(), len(token_BxT), True)
  return row | {"by_position": [round(float(x), 6) for x in rates]}
