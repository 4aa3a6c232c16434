"""Biases of random lines, for tests of whatever draws or gathers them."""

import numpy as np

from lengthgen_jax.attention.lines import WHOLE, SiteLines


def random_lines(seed: int, site: str = "cross", segments: int = 2):
  """SiteLines [N=2, H=2, K=5] that cross each other now and then.

  Args:
    seed: of the random numbers.
    site: "self" has no lines anchored right.
    segments: number of source segments.
  """
  rng = np.random.default_rng(seed)
  shape = (2, 2, 5)
  pick = lambda low, high: rng.integers(low, high, shape).astype(np.int32)
  names = range(segments if site == "cross" else 1)
  return SiteLines(
    segment=rng.choice([*names, WHOLE], shape).astype(np.int32),
    anchor=pick(0, 2 if site == "cross" else 1),
    delta=pick(-1, 3),
    intercept=pick(-2, 4),
    value=rng.normal(size=shape).astype(np.float32),
    valid=rng.random(shape) < 0.8,
    transparent=np.zeros(shape[:2], bool),
  )
