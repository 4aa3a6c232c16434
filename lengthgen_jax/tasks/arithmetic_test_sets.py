"""The test sets of arithmetic: uniform operands, and hard or odd inputs, which
are rare among uniform ones.

Operands have at most `size.lengths` digits each, and zeros behind them.
"""

import jax
import jax.numpy as jnp

from lengthgen_jax.tasks.numbers import NumberTask
from lengthgen_jax.tasks.task import Size, uniform_int


def equal(task: NumberTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns uniform operands of exactly the given lengths; a short operand may
  be 0."""
  place = jnp.arange(size.max_length)

  def number(key: jax.Array, length: jax.Array) -> jax.Array:
    body_key, lead_key = jax.random.split(key)
    digits = jax.random.randint(body_key, place.shape, 0, task.base)
    lead = jax.random.randint(lead_key, (), 1, task.base)
    digits = jnp.where(place == length - 1, lead, digits)
    return jnp.where(place < length, digits, 0)

  keys = jax.random.split(key, task.operands)
  operands = [number(keys[i], size.lengths[i]) for i in task.long_operands]
  if task.short_operand:
    digit = jax.random.randint(keys[1], (1,), 0, 10)
    operands.append(jnp.pad(digit, (0, size.max_length - 1)))
  return jnp.stack(operands)


def unequal(task: NumberTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns one operand of the given length and one whose length is uniform in
  1...length, in random order; the same as `equal` if only one is long."""
  if len(task.long_operands) == 2:
    key, order_key, length_key = jax.random.split(key, 3)
    longest = size.lengths[0]
    shorter = jax.random.randint(length_key, (), 1, longest + 1)
    pair = jnp.stack([longest, shorter])
    in_order = jax.random.bernoulli(order_key)
    size = size._replace(lengths=jnp.where(in_order, pair, pair[::-1]))
  return equal(task, key, size)


def longest_carry(task: NumberTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns operands with the longest carry chain (99...9, or operands that add
  up to 10^L), or a one-hot string of bits."""
  place, length = jnp.arange(size.max_length), size.lengths[0]
  inside = place < length
  if task.base == 2:
    hot_place = jax.random.randint(key, (), 0, length)
    return (place == hot_place).astype(jnp.int32)[None]
  nines = jnp.where(inside, 9, 0)
  if task.operands == 1:
    return nines[None]
  if task.short_operand:
    factor = jax.random.randint(key, (), 2, 10)
    return jnp.stack([nines, jnp.where(place == 0, factor, 0)])
  a = jnp.where(inside, jax.random.randint(key, place.shape, 1, 10), 0)
  return jnp.stack([a, jnp.where(inside, 9 - a, 0) + (place == 0)])


def zeros(task: NumberTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns 0, 0+0 or 0*0, the one input that is nothing but padding."""
  return jnp.zeros((task.operands, size.max_length), jnp.int32)


def nines(task: NumberTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns 99...9+1 (the successor of 99...9, 99...9*1; ones alone for
  bits)."""
  place = jnp.arange(size.max_length)
  first_operand = jnp.where(place < size.lengths[0], task.base - 1, 0)
  one = (place == 0).astype(jnp.int32)
  return jnp.stack([first_operand, *[one] * (task.operands - 1)])


def repeated(task: NumberTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns operands in which one nonzero digit is repeated, like 777+444; ones
  alone for bits."""
  place = jnp.arange(size.max_length)
  number = jax.random.uniform(key, (task.operands, 1))
  digit = between(number, 1, task.base - 1)
  return jnp.where(place < size.lengths[:, None], digit, 0)


def short(task: NumberTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns numbers of 1 to length/10 digits, written at the full length with
  zeros before the most significant digit."""
  length_key, key = jax.random.split(key)
  longest = jnp.maximum(size.lengths // 10, 1)
  lengths = 1 + uniform_int(
    jax.random.uniform(length_key, (task.operands,)), longest
  )
  return equal(task, key, size._replace(lengths=lengths))


def carry_chain(
  task: NumberTask, key: jax.Array, size: Size, carries: int
) -> jax.Array:
  """Returns operands with a carry that travels `carries` places, and no other.

  Two operands generate the carry at a random place, propagate it where their
  digits add up to 9, and absorb it. The successor's carry begins at the last
  digit. In N×1 there is a run of digits that all carry, and a zero above it.
  A bit string has two ones, so that the running xor is 1 for so many places;
  a single one if these reach the leading bit.
  """
  # Four for each place; the last one of the first place says where the chain
  # begins.
  uniforms = jax.random.uniform(key, (size.max_length, 4)).T
  length, place = size.lengths[0], jnp.arange(size.max_length)
  first = uniform_int(uniforms[3, 0], length - carries + 1)
  # The leading digit is not zero.
  least_digit = (place == length - 1).astype(jnp.int32)
  if task.base == 2:
    operands = ((place == first) | (place == first + carries))[None]
  elif task.operands == 1:
    other = between(uniforms[0], least_digit, jnp.where(place == carries, 8, 9))
    operands = jnp.where(place < carries, 9, other)[None]
  elif task.short_operand:
    operands = _product_operands(uniforms, place, least_digit, first, carries)
  else:
    operands = _sum_operands(uniforms, place, least_digit, first, carries)
  return jnp.where(place < length, operands, 0).astype(jnp.int32)


# Both functions below return operands with one chain of carries, which begins
# at the place `first`, from three rows of uniform numbers [3, places]; a digit
# is at least `least_digit` [places].


def _sum_operands(uniforms, place, least_digit, first, carries) -> jax.Array:
  """Returns two operands whose digits add up to 10 or more where the chain
  begins, to 9 along it, and to 8 or less elsewhere."""
  in_chain = (place > first) & (place < first + carries)
  total = jnp.where(in_chain, 9, between(uniforms[0], 2 * least_digit, 8))
  total = jnp.where(place == first, between(uniforms[1], 10, 18), total)
  least = jnp.maximum(total - 9, least_digit)
  most = jnp.minimum(total - least_digit, 9)
  operand = between(uniforms[2], least, most)
  return jnp.stack([operand, total - operand])


def _product_operands(
  uniforms, place, least_digit, first, carries
) -> jax.Array:
  """Returns a number and a one-digit factor; only the factor's products with
  the digits of the chain reach 10."""
  # The digit that absorbs the carry is zero, so it must not be the leading
  # digit.
  first = first + jnp.any(least_digit & (place == first + carries))
  factor = between(uniforms[0, 0], 2, 9)
  run_digits = between(uniforms[1], (9 + factor) // factor, 9)
  absorbs = place == first + carries
  other_digits = jnp.where(
    absorbs, 0, between(uniforms[2], least_digit, 9 // factor)
  )
  in_run = (place >= first) & (place < first + carries)
  factors = jnp.where(place == 0, factor, 0)
  return jnp.stack([jnp.where(in_run, run_digits, other_digits), factors])


def between(
  number: jax.Array, low: int | jax.Array, high: int | jax.Array
) -> jax.Array:
  """Makes uniform numbers in [0, 1) integers in low...high, elementwise."""
  return low + uniform_int(number, high - low + 1)


TEST_SETS = {
  "equal": equal,
  "unequal": unequal,
  "carry": longest_carry,
  "chain": carry_chain,
  "nines": nines,
  "zeros": zeros,
  "short": short,
  "repeated": repeated,
}
