"""Which numbers training, validation and tests draw."""

import dataclasses

import jax
import jax.numpy as jnp

from lengthgen_jax.tasks import digits
from lengthgen_jax.tasks.batch import Batch

NUMBERS = ("lengths", "permutation")
TEST_SETS = ("equal", "unequal", "carry")
POPULATION = 1 << digits.PERMUTATION_BITS
TRAIN_SHARE = POPULATION * 7 // 8  # the papers' 7:1 split


@dataclasses.dataclass(frozen=True)
class Interpolation:
  """In-range examples: the training set and its held-out sibling.

  Attributes:
    task: an arithmetic task.
    numbers: "lengths" draws a length uniformly in 1...units(train_length) for
      every operand, then uniform digits (validation is fresh draws of the same
      kind); "permutation" is the papers' set, a random permutation of the
      integers below 2^20 split 7:1 into training and validation.
    train_length: longest training length in decimal digits.
    seed: of the permutation.
  """

  task: object
  numbers: str
  train_length: int
  seed: int = 0

  def sample(self, key, batch: int, width: int, held_out=False) -> Batch:
    shape = (batch, self.task.operands)
    draw_key, sample_key = jax.random.split(key)
    if self.numbers == "lengths":
      longest = self.task.units(self.train_length)
      length = jax.random.randint(draw_key, shape, 1, longest + 1)
      return self.task.sample(sample_key, length, width)
    low, high = (TRAIN_SHARE, POPULATION) if held_out else (0, TRAIN_SHARE)
    index = jax.random.randint(draw_key, shape, low, high)
    values = digits.permuted(index, self.seed)
    return self.task.sample_values(sample_key, values, width)


def test_size(length: int, samples: int) -> int:
  """min(10^L - 10^(L-1), samples), the papers' size of a test set."""
  return samples if length > 9 else min(9 * 10 ** (length - 1), samples)


def sample_test(
  task, test_set: str, key, batch: int, length, width: int
) -> Batch:
  """Examples of a test set at one length; lengths may be traced.

  Args:
    task: an arithmetic task.
    test_set: "equal" (every operand has exactly `length` digits), "unequal"
      (one operand has `length`, the other uniform in 1...length; the same as
      "equal" for one operand), or the stress set "carry": the longest carry
      chain (99...9, or operands that add up to 10^L) and, for bits, one-hot
      strings.
    key: PRNG key.
    batch: number of examples.
    length: in the task's units (digits or bits).
    width: W, static.
  """
  order_key, length_key, sample_key = jax.random.split(key, 3)
  lengths = jnp.full((batch, task.operands), length)
  if test_set == "unequal" and task.operands == 2 and not task.short_operand:
    other = jax.random.randint(length_key, (batch,), 1, length + 1)
    first = jax.random.bernoulli(order_key, shape=(batch,))
    a = jnp.where(first, length, other)
    lengths = jnp.stack([a, jnp.where(first, other, length)], axis=1)
  if test_set != "carry":
    return task.sample(sample_key, lengths, width, exact=True)
  return task.encode(
    _carry_chain(task, sample_key, batch, length, width), lengths[:, 0]
  )


def _carry_chain(task, key, batch: int, length, width: int):
  """Operands whose carry runs from the first digit to the last."""
  place = jnp.broadcast_to(jnp.arange(width)[::-1], (batch, width))
  inside = place < length
  if task.base == 2:
    hot = jax.random.randint(key, (batch, 1), 0, length)
    return [(place == hot).astype(jnp.int32)]
  nines = jnp.where(inside, 9, 0)
  if task.operands == 1:
    return [nines]
  if task.short_operand:
    return [nines, jax.random.randint(key, (batch, 1), 2, 10)]
  a = jnp.where(inside, jax.random.randint(key, (batch, width), 1, 10), 0)
  return [a, jnp.where(inside, 9 - a, 0) + (place == 0)]
