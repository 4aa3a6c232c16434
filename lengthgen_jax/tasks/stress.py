"""Inputs of arithmetic that are hard, or odd, where random ones are neither.

Each is a test set (task, key, size, *how) -> operands' digits [O, longest], as
those in digits.py.
"""

import jax
import jax.numpy as jnp

from lengthgen_jax.tasks import digits
from lengthgen_jax.tasks.task import below


def zeros(task, key, size):
  """0, 0+0, 0*0: the one input that is nothing but padding."""
  return jnp.zeros((task.operands, size.longest), jnp.int32)


def nines(task, key, size):
  """99...9+1 (the successor of 99...9, 99...9*1; ones alone for bits)."""
  place = jnp.arange(size.longest)
  inside = jnp.where(place < size.lengths[0], task.base - 1, 0)
  one = (place == 0).astype(jnp.int32)
  return jnp.stack([inside, *[one] * (task.operands - 1)])


def repeated(task, key, size):
  """Every operand one digit again and again, as 777+444; ones alone for
  bits."""
  place = jnp.arange(size.longest)
  number = jax.random.uniform(key, (task.operands, 1))
  digit = between(number, 1, task.base - 1)
  lengths = size.lengths[:, None]
  if task.short_operand:
    lengths = lengths.at[1].set(1)
  return jnp.where(place < lengths, digit, 0)


def short(task, key, size):
  """Numbers of up to a tenth of the length, padded with zeros to all of it."""
  length_key, key = jax.random.split(key)
  most = jnp.maximum(size.lengths // 10, 1)
  lengths = 1 + below(jax.random.uniform(length_key, (task.operands,)), most)
  return digits.equal(task, key, size._replace(lengths=lengths))


def chain(task, key, size, carries: int):
  """A carry that travels `carries` places, and none elsewhere.

  Two operands make it at a random place, hand it on where their digits add up
  to 9, and absorb it; the successor's begins at the last digit; N×1 has a run
  of digits that all carry and a zero above it; bits are two ones, so that the
  running xor is 1 for so many places.
  """
  # Of four numbers a place, the first place's last one says where.
  draw = jax.random.uniform(key, (size.longest, 4)).T
  length, place = size.lengths[0], jnp.arange(size.longest)
  first = below(draw[3, 0], length - carries + 1)
  lead = (place == length - 1).astype(jnp.int32)  # the least that it may be
  if task.base == 2:
    found = ((place == first) | (place == first + carries))[None]
  elif task.operands == 1:
    other = between(draw[0], lead, jnp.where(place == carries, 8, 9))
    found = jnp.where(place < carries, 9, other)[None]
  elif task.short_operand:
    found = _products(draw, place, lead, first, carries)
  else:
    found = _sums(draw, place, lead, first, carries)
  return jnp.where(place < length, found, 0).astype(jnp.int32)


def _sums(draw, place, lead, first, carries: int):
  """Digits that add up to 10 or more, then to 9, elsewhere to 8 or less."""
  chained = (place > first) & (place < first + carries)
  total = jnp.where(chained, 9, between(draw[0], 2 * lead, 8))
  total = jnp.where(place == first, between(draw[1], 10, 18), total)
  least, most = jnp.maximum(total - 9, lead), jnp.minimum(total - lead, 9)
  a = between(draw[2], least, most)
  return jnp.stack([a, total - a])


def _products(draw, place, lead, first, carries: int):
  """The run's digits times the factor reach 10, the others do not."""
  # Right below the leading digit, which is not zero, nothing would absorb.
  first = first + jnp.any(lead & (place == first + carries))
  factor = between(draw[0, 0], 2, 9)
  run = between(draw[1], (9 + factor) // factor, 9)
  absorbs = place == first + carries
  other = jnp.where(absorbs, 0, between(draw[2], lead, 9 // factor))
  inside = (place >= first) & (place < first + carries)
  factors = jnp.where(place == 0, factor, 0)
  return jnp.stack([jnp.where(inside, run, other), factors])


def between(number, low, high):
  """Numbers in [0, 1) as integers of low...high."""
  return low + below(number, high - low + 1)


SETS = {
  "chain": chain,
  "nines": nines,
  "zeros": zeros,
  "short": short,
  "repeated": repeated,
}


def names(task) -> tuple[str, ...]:
  """Of a task's test sets, those to try; where there is one long operand, some
  are others by another name."""
  two = task.operands == 2 and not task.short_operand
  same = {"equal"} if two else {"equal", "unequal", "nines"}
  return tuple(name for name in task.test_sets if name not in same)


def alone(task) -> tuple[str, ...]:
  """Test sets with one input of each length."""
  if task.operands > 1:
    return "zeros", "nines"
  return "zeros", "nines", "repeated" if task.base == 2 else "carry"


def variants(test_set: str, section, units: int) -> list:
  """(row's name, further arguments): chains as long as there is room for."""
  if test_set != "chain":
    return [(test_set, ())]
  return [(f"chain_{n}", (n,)) for n in section.chains if n <= units]
