"""Result rows and what both families' evaluations share about them."""

import jax
import numpy as np

from lengthgen_jax import metrics


def counted(where: dict, metric: str, correct, n, teacher_forced=False) -> dict:
  """A row of `correct` out of n, with its lower bound if they are samples."""
  correct, n = int(correct), int(n)
  bound = None if teacher_forced else metrics.lower_bound(correct, n)
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
  """The worst output position's accuracy, and every one's."""
  rates = np.asarray(token_BxT).mean(axis=0)
  row = measured(where, "position", rates.min(), len(token_BxT), True)
  return row | {"by_position": [round(float(x), 6) for x in rates]}


def samples_at(config, length: int) -> int:
  """eval.samples for a length in eval.lengths."""
  samples = config.eval.samples
  many = len(samples) > 1
  return samples[config.eval.lengths.index(length)] if many else samples[0]


def usual_memory(config) -> int:
  """MiB of attention at once: what fits a CPU's cache is twice as fast as what
  fits its memory."""
  usual = 16 if jax.default_backend() == "cpu" else 1024
  return config.eval.memory_mb or usual
