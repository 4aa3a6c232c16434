"""This module names random streams: key = fold_in(stream(seed, name), step)."""

import math
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp


def stream(seed: jax.Array | int, name: str) -> jax.Array:
  """Returns the key of stream `name` ("init", "data", "dropout", "eval") of a
  seed."""
  return named(jax.random.key(seed), name)


def named(key: jax.Array, name: str) -> jax.Array:
  """Returns a key that is made of another key and a name."""
  return jax.random.fold_in(key, zlib.crc32(name.encode()))


class Noise(NamedTuple):
  """Noise is what training draws beside a batch.

  The noise of an example is a function of the key and of its number: the same
  in the whole batch and in any part of it.

  Attributes:
    key: of the batch.
    number: [B] int32, the numbers of these examples in the batch.
  """

  key: jax.Array
  number: jax.Array

  def of(self, name: str) -> "Noise":
    """Returns other noise for the same examples."""
    return self._replace(key=named(self.key, name))

  def take(self, cut: Callable) -> "Noise":
    """Returns the noise of the examples that `cut` takes."""
    return self._replace(number=cut(self.number))

  def each(self, draw: Callable) -> jax.Array:
    """Applies `draw` to a key of every example's own, [B, ...]."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(self.key, self.number)
    return jax.vmap(draw)(keys)

  def kept(self, shape: Sequence[int], rate: float) -> jax.Array:
    """Returns a dropout mask [B, *shape] bool, False with probability `rate`.

    Every entry's number is hashed with two words of the key: a tenth of the
    operations that threefry takes, and nothing to store for the backward pass,
    where a fusion draws it again.
    """
    first, second = jax.random.bits(self.key, (2,), jnp.uint32)
    words = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    first_word = self.number.astype(jnp.uint32) * jnp.uint32(math.prod(shape))
    words += jnp.expand_dims(first_word, tuple(range(1, 1 + len(shape))))
    bits = _hash(_hash(words ^ first) + second)
    return bits >= jnp.uint32(round(rate * 2**32))


def _hash(x: jax.Array) -> jax.Array:
  """Permutes the 32-bit words so that every bit of x moves every other.

  C. Wellons, "Prospecting for hash functions", 2018: lowbias32.
  """
  x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
  x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
  return x ^ (x >> 16)
