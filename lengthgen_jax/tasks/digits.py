"""Numbers as arrays of digits: drawn, converted and carried, never as values.

Digit arrays are [B, W], most significant first, left-padded with zeros. The
one exception is the papers' training set of integers below 2^20, which fit
int32; everything longer exists as digits only.
"""

import jax
import jax.numpy as jnp

PERMUTATION_BITS = 20  # the papers' interpolation set: integers below 2^20


def draw(key, length_B, width: int, base: int, exact: bool):
  """Uniform numbers of given lengths.

  Args:
    key: PRNG key.
    length_B: digits of each number, at most `width`.
    width: W, static.
    base: 10, or 2 for bits.
    exact: if true the leading digit is not zero, so that a number has exactly
      `length` digits; otherwise all its digits are uniform and shorter numbers
      (and zero) occur too.

  Returns:
    [B, W] int32.
  """
  batch = length_B.shape[0]
  body_key, lead_key = jax.random.split(key)
  digits = jax.random.randint(body_key, (batch, width), 0, base)
  place = jnp.arange(width)[::-1]  # 0 is the least significant digit
  digits = jnp.where(place < length_B[:, None], digits, 0)
  if not exact:
    return digits
  lead = jax.random.randint(lead_key, (batch, 1), 1, base)
  return jnp.where(place == length_B[:, None] - 1, lead, digits)


def permuted(index, seed: int):
  """Π(index): a fixed pseudo-random permutation of the integers below 2^20.

  A Feistel network on two 10-bit halves, so that a training set of a million
  numbers is a function of (seed, index) and takes no memory.
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


def from_value(value_B, width: int, base: int):
  """Digits [B, W] of integers below 2^20."""
  powers = [base**i for i in range(width) if base**i < 1 << PERMUTATION_BITS]
  digits = value_B[:, None] // jnp.array(powers[::-1], jnp.int32) % base
  return jnp.pad(digits, ((0, 0), (width - digits.shape[1], 0)))


def carry(column_BxW, base: int):
  """Digits of Σ column_w · base^(W-1-w), the carry out of the top dropped."""

  def step(carried_B, column_B):
    total_B = column_B + carried_B
    return total_B // base, total_B % base

  zero = jnp.zeros_like(column_BxW[:, 0])
  _, digits = jax.lax.scan(step, zero, column_BxW.T, reverse=True)
  return digits.T
