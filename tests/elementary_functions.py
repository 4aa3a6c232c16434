"""This script checks that exp, rsqrt and 1/x, compiled for this device, are as
accurate as certify.rounding assumes.

  python tests/elementary_functions.py            # every float32: minutes
  python tests/elementary_functions.py --stride=997
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import numpy as np

from lengthgen_jax.certify import rounding

CHUNK = 1 << 22  # numbers that are tried at once


class Trial(NamedTuple):
  """A Trial says on which numbers a function is tried.

  Attributes:
    function: the function as the program calls it.
    exact: the same function in float64.
    first, last: the smallest and the largest magnitude of the numbers.
    sign: the sign of the numbers, 1 or -1.
    ulps: how many units in the last place the result may be off.
  """

  function: Callable
  exact: Callable
  first: float
  last: float
  sign: int
  ulps: float


# exp is taken of scores less their maximum, which are not positive; below -104
# it is zero. rsqrt is taken of a variance plus epsilon, and the reciprocal of a
# sum of exponentials, of which the largest is exp(0).
TRIALS = {
  "exp": Trial(jax.numpy.exp, np.exp, 0.0, 104.0, -1, rounding.EXP_ULPS),
  "rsqrt": Trial(
    jax.lax.rsqrt,
    lambda x: 1 / np.sqrt(x),
    5e-7,
    1e12,
    1,
    rounding.RSQRT_ULPS,
  ),
  "reciprocal": Trial(
    lambda x: 1.0 / x, lambda x: 1 / x, 0.5, 4096.0, 1, rounding.RECIPROCAL_ULPS
  ),
}
SMALLEST_NORMAL = 2.0**-126  # results below it may be flushed to zero


def numbers(trial: Trial, stride: int) -> Iterator[np.ndarray]:
  """Yields arrays of the float32 numbers of a trial, every `stride`-th."""
  first, last = np.float32([trial.first, trial.last]).view(np.uint32)
  for start in range(int(first), int(last) + 1, CHUNK * stride):
    end = min(start + CHUNK * stride, int(last) + 1)
    bits = np.arange(start, end, stride, np.uint32)
    yield np.float32(trial.sign) * bits.view(np.float32)


def largest_error(name: str, stride: int) -> tuple[float, int]:
  """Returns the largest error of a function, in units in the last place of the
  exact result, and how many numbers were tried.

  Below 2^-126 the unit is 2^-149.
  """
  trial, largest, count = TRIALS[name], 0.0, 0
  function = jax.jit(trial.function)
  for x in numbers(trial, stride):
    result = np.asarray(function(x), np.float64)
    exact = trial.exact(x.astype(np.float64))
    unit = np.exp2(np.floor(np.log2(np.maximum(exact, SMALLEST_NORMAL))) - 23)
    error = np.abs(result - exact)
    # A device may flush results below 2^-126 to zero, so an error of 2^-126 is
    # allowed there.
    error = np.where(
      exact < 2 * SMALLEST_NORMAL, error - SMALLEST_NORMAL, error
    )
    largest = max(largest, float((error / unit).max()))
    count += len(x)
  return largest, count


def main(stride: int) -> int:
  """Tries every `stride`-th number of all TRIALS, prints the largest errors,
  and returns the exit code: 1 if a function is less accurate than assumed."""
  failed = False
  for name, trial in TRIALS.items():
    error, count = largest_error(name, stride)
    # `not <=` is also true for NaN.
    failed |= not error <= trial.ulps
    print(
      f"{name}: {count:,} numbers, off by at most {error:.3f} units in the last"
      f" place ({trial.ulps} assumed), {jax.default_backend()}",
      flush=True,
    )
  return int(failed)


if __name__ == "__main__":
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--stride", type=int, default=1)
  sys.exit(main(parser.parse_args().stride))
