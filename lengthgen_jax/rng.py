"""Named random streams: key = fold_in(stream(seed, name), step)."""

import math
import zlib
from typing import NamedTuple

import jax
import jax.numpy as jnp


def stream(seed, name: str) -> jax.Array:
  """The key of stream `name` ("init", "data", "dropout", "eval") of a seed."""
  return named(jax.random.key(seed), name)


def named(key, name: str) -> jax.Array:
  return jax.random.fold_in(key, zlib.crc32(name.encode()))


class Noise(NamedTuple):
  """What training draws beside a batch.

  What an example gets is a function of the key and of its number: the same in
  the whole batch and in any part of it.

  Attributes:
    key: of the batch.
    number: [B] int32, which examples of it these are.
  """

  key: jax.Array
  number: jax.Array

  def of(self, name: str) -> "Noise":
    """Other noise for the same examples."""
    return self._replace(key=named(self.key, name))

  def take(self, cut) -> "Noise":
    """Of the examples that `cut` takes."""
    return self._replace(number=cut(self.number))

  def each(self, draw):
    """[B, ...]: `draw` with a key of every example's own."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(self.key, self.number)
    return jax.vmap(draw)(keys)

  def kept(self, shape, rate: float):
    """[B, *shape] bool, False with probability `rate`.

    Every place's number, hashed with two words of the key between: a tenth of
    the operations that threefry takes, and nothing to keep for the backward
    pass, where a fusion draws it again.
    """
    first, second = jax.random.bits(self.key, (2,), jnp.uint32)
    place = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    number = self.number.astype(jnp.uint32) * jnp.uint32(math.prod(shape))
    place += jnp.expand_dims(number, tuple(range(1, 1 + len(shape))))
    drawn = _hash(_hash(place ^ first) + second)
    return drawn >= jnp.uint32(round(rate * 2**32))


def _hash(x):
  """A permutation of the 32-bit words in which every bit of x moves every
  other (C. Wellons, "Prospecting for hash functions", 2018: lowbias32)."""
  x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
  x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
  return x ^ (x >> 16)
