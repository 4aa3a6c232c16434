"""Makes hard or odd inputs of arithmetic, which random inputs hardly ever are.

Each test set is a function (task, key, size, *arguments) -> operands' digits
[O, longest], as those in digits.py.
"""

import jax
import jax.numpy as jnp

from lengthgen_jax.tasks import digits
from lengthgen_jax.tasks.numbers import NumberTask
from lengthgen_jax.tasks.task import Size, below


def zeros(task: NumberTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns 0, 0+0 or 0*0, the one input that is nothing but padding."""
  return jnp.zeros((task.operands, size.longest), jnp.int32)


def nines(task: NumberTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns 99...9+1 (the successor of 99...9, 99...9*1; ones alone for
  bits)."""
  place = jnp.arange(size.longest)
  first_operand = jnp.where(place < size.lengths[0], task.base - 1, 0)
  one = (place == 0).astype(jnp.int32)
  return jnp.stack([first_operand, *[one] * (task.operands - 1)])


def repeated(task: NumberTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns operands of one digit repeated again and again, as 777+444; ones
  alone for bits."""
  place = jnp.arange(size.longest)
  number = jax.random.uniform(key, (task.operands, 1))
  digit = between(number, 1, task.base - 1)
  lengths = size.lengths[:, None]
  if task.short_operand:
    lengths = lengths.at[1].set(1)
  return jnp.where(place < lengths, digit, 0)


def short(task: NumberTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns numbers of up to a tenth of the length, padded with zeros to all of
  it."""
  length_key, key = jax.random.split(key)
  longest = jnp.maximum(size.lengths // 10, 1)
  lengths = 1 + below(jax.random.uniform(length_key, (task.operands,)), longest)
  return digits.equal(task, key, size._replace(lengths=lengths))


def chain(
  task: NumberTask, key: jax.Array, size: Size, carries: int
) -> jax.Array:
  """Returns operands with a carry that travels `carries` places, and no other.

  Two operands generate the carry at a random place, propagate it where their
  digits add up to 9, and absorb it. The successor's carry begins at the last
  digit. In N×1 there is a run of digits that all carry, and a zero above it.
  A bit string has two ones, so that the running xor is 1 for so many places.
  """
  # There are four random numbers for each place; the last one of the first
  # place says where the chain begins.
  numbers = jax.random.uniform(key, (size.longest, 4)).T
  length, place = size.lengths[0], jnp.arange(size.longest)
  first = below(numbers[3, 0], length - carries + 1)
  # The least digit of each place: the leading one is not zero.
  lead = (place == length - 1).astype(jnp.int32)
  if task.base == 2:
    operands = ((place == first) | (place == first + carries))[None]
  elif task.operands == 1:
    other = between(numbers[0], lead, jnp.where(place == carries, 8, 9))
    operands = jnp.where(place < carries, 9, other)[None]
  elif task.short_operand:
    operands = _products(numbers, place, lead, first, carries)
  else:
    operands = _sums(numbers, place, lead, first, carries)
  return jnp.where(place < length, operands, 0).astype(jnp.int32)


def _sums(
  numbers: jax.Array,
  place: jax.Array,
  lead: jax.Array,
  first: jax.Array,
  carries: int,
) -> jax.Array:
  """Returns two operands whose digits add up to 10 or more at the first place
  of the chain, to 9 along it, and to 8 or less elsewhere."""
  in_chain = (place > first) & (place < first + carries)
  total = jnp.where(in_chain, 9, between(numbers[0], 2 * lead, 8))
  total = jnp.where(place == first, between(numbers[1], 10, 18), total)
  least, most = jnp.maximum(total - 9, lead), jnp.minimum(total - lead, 9)
  a = between(numbers[2], least, most)
  return jnp.stack([a, total - a])


def _products(
  numbers: jax.Array,
  place: jax.Array,
  lead: jax.Array,
  first: jax.Array,
  carries: int,
) -> jax.Array:
  """Returns a number and a one-digit factor: the products of the run's digits
  reach 10, the others do not."""
  # The digit that absorbs the carry is zero, so it must not be the leading
  # digit.
  first = first + jnp.any(lead & (place == first + carries))
  factor = between(numbers[0, 0], 2, 9)
  run_digits = between(numbers[1], (9 + factor) // factor, 9)
  absorbs = place == first + carries
  other_digits = jnp.where(absorbs, 0, between(numbers[2], lead, 9 // factor))
  in_run = (place >= first) & (place < first + carries)
  factors = jnp.where(place == 0, factor, 0)
  return jnp.stack([jnp.where(in_run, run_digits, other_digits), factors])


def between(
  number: jax.Array, low: int | jax.Array, high: int | jax.Array
) -> jax.Array:
  """Returns uniform numbers in [0, 1) as integers of low...high."""
  return low + below(number, high - low + 1)


SETS = {
  "chain": chain,
  "nines": nines,
  "zeros": zeros,
  "short": short,
  "repeated": repeated,
}


def names(task: NumberTask) -> tuple[str, ...]:
  """Returns the names of those of a task's test sets that are to be tried;
  where there is one long operand, some sets are the same as others."""
  two_long = task.operands == 2 and not task.short_operand
  duplicates = {"equal"} if two_long else {"equal", "unequal", "nines"}
  return tuple(name for name in task.test_sets if name not in duplicates)


def alone(task: NumberTask) -> tuple[str, ...]:
  """Returns the names of the test sets with one input of each length."""
  if task.operands > 1:
    return "zeros", "nines"
  return "zeros", "nines", "repeated" if task.base == 2 else "carry"


def variants(test_set: str, section, units: int) -> list[tuple[str, tuple]]:
  """Returns (row's name, further arguments) of each variant: chains as long as
  there is room for."""
  if test_set != "chain":
    return [(test_set, ())]
  return [(f"chain_{n}", (n,)) for n in section.chains if n <= units]
