"""Draws and converts numbers as arrays of digits, never as values.

Digit arrays are [n], least significant first, followed by zeros. The one
exception is the papers' training set of integers below 2^20, which fit int32;
longer numbers exist as digits only.
"""

import jax
import jax.numpy as jnp

from lengthgen_jax.coordinates import Array
from lengthgen_jax.tasks.numbers import NumberTask
from lengthgen_jax.tasks.task import Size

PERMUTATION_BITS = 20  # the papers' interpolation set: integers below 2^20
POPULATION = 1 << PERMUTATION_BITS
TRAIN_SHARE = POPULATION * 7 // 8  # the papers' 7:1 split


def exact(
  key: jax.Array, length: int | Array, size: int, base: int
) -> jax.Array:
  """Returns the digits [size] of a uniform number of exactly `length`
  digits."""
  body_key, lead_key = jax.random.split(key)
  digits = jax.random.randint(body_key, (size,), 0, base)
  lead = jax.random.randint(lead_key, (), 1, base)
  place = jnp.arange(size)
  digits = jnp.where(place == length - 1, lead, digits)
  return jnp.where(place < length, digits, 0)


def permuted(index: jax.Array, seed: int) -> jax.Array:
  """Returns Π(index), for a fixed pseudo-random permutation Π of the integers
  below 2^20.

  Π is a Feistel network on two 10-bit halves, so that a training set of a
  million numbers is a function of (seed, index) and takes no memory.
  """
  half = PERMUTATION_BITS // 2
  mask = (1 << half) - 1
  index = index.astype(jnp.uint32)
  salt = jnp.uint32((seed * 0x85EBCA77) & 0xFFFFFFFF)

  def one_round(step, halves):
    left, right = halves
    mixed = right * jnp.uint32(0x9E3779B1) + salt
    mixed += step.astype(jnp.uint32) * jnp.uint32(0xC2B2AE3D)
    mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(0x2C1B3C6D)
    mixed = (mixed ^ (mixed >> 12)) * jnp.uint32(0x297A2D39)
    return right, left ^ ((mixed ^ (mixed >> 15)) & mask)

  # A loop, because XLA takes seconds to compile the rounds unrolled.
  halves = index >> half, index & mask
  left, right = jax.lax.fori_loop(0, 6, one_round, halves)
  return ((left << half) | right).astype(jnp.int32)


def from_values(values: jax.Array, size: int, base: int) -> jax.Array:
  """Returns the digits [O, size] of integers [O] below 2^20."""
  powers = [base**i for i in range(size) if base**i < POPULATION]
  digits = values[:, None] // jnp.array(powers, jnp.int32) % base
  return jnp.pad(digits, ((0, 0), (0, size - len(powers))))


# Test sets of arithmetic: each returns the operands' digits [O, longest].


def equal(task: NumberTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns operands of exactly the given lengths each."""
  keys = jax.random.split(key, task.operands)
  operands = [
    jnp.pad(jax.random.randint(keys[i], (1,), 0, 10), (0, size.longest - 1))
    if task.short_operand and i == 1
    else exact(keys[i], size.lengths[i], size.longest, task.base)
    for i in range(task.operands)
  ]
  return jnp.stack(operands)


def unequal(task: NumberTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns one operand of the length and one whose length is uniform in
  1...length, in random order; the same as `equal` where there is one long
  operand."""
  if task.operands == 2 and not task.short_operand:
    key, order_key, length_key = jax.random.split(key, 3)
    longest = size.lengths[0]
    shorter = jax.random.randint(length_key, (), 1, longest + 1)
    pair = jnp.stack([longest, shorter])
    in_order = jax.random.bernoulli(order_key)
    size = size._replace(lengths=jnp.where(in_order, pair, pair[::-1]))
  return equal(task, key, size)


def carry_chain(task: NumberTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns operands with the longest carry chain (99...9, or operands that add
  up to 10^L), or a one-hot string of bits."""
  place, length = jnp.arange(size.longest), size.lengths[0]
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
