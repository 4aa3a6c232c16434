"""Checks that functions compiled for this device are as accurate as
proofs/checker.py assumes:

  python tests/elementary_functions.py --stride=1    # every float32: minutes
"""

import argparse
import sys

import jax
import numpy as np

from lengthgen_jax.proofs import checker

CHUNK = 1 << 22  # numbers that are tried at once
# By name: the function, the same in float64, and the range of its arguments.
# exp is taken of scores less their maximum, and below -104 is zero; rsqrt of a
# variance plus epsilon; sin and cos of what is below the largest period.
TRIALS = {
  "exp": (lambda x: jax.numpy.exp(-x), lambda x: np.exp(-x), 0.0, 104.0),
  "rsqrt": (jax.lax.rsqrt, lambda x: 1 / np.sqrt(x), 5e-7, 1e12),
  "sin": (jax.numpy.sin, np.sin, 0.0, float(checker.MAX_PERIOD)),
  "cos": (jax.numpy.cos, np.cos, 0.0, float(checker.MAX_PERIOD)),
}
SMALLEST = 2.0**-126  # results below it may be taken for zero


def largest_error(name, stride):
  """Returns the largest error of a function at every `stride`-th float32 of its
  range, in units in the last place of the exact result."""
  function, exact_function, first, last = TRIALS[name]
  first, last = np.float32([first, last]).view(np.uint32).tolist()
  function, largest = jax.jit(function), 0.0
  for start in range(first, last + 1, CHUNK * stride):
    end = min(start + CHUNK * stride, last + 1)
    x = np.arange(start, end, stride, np.uint32).view(np.float32)
    exact = exact_function(x.astype(float))
    unit = np.maximum(np.abs(exact), SMALLEST)
    unit = np.exp2(np.floor(np.log2(unit)) - 23)
    error = np.abs(np.asarray(function(x), float) - exact)
    error -= SMALLEST * (np.abs(exact) < 2 * SMALLEST)
    largest = np.maximum(largest, (error / unit).max())  # NaN stays
  return float(largest)


def main(stride):
  """Prints the largest errors; returns the exit code."""
  errors = {name: largest_error(name, stride) for name in TRIALS}
  print(f"{jax.default_backend()}: {errors}, {checker.ULPS} are assumed")
  return int(not max(errors.values()) <= checker.ULPS)


if __name__ == "__main__":
  parser = argparse.ArgumentParser()
  parser.add_argument("--stride", type=int, default=997)
  sys.exit(main(parser.parse_args().stride))
