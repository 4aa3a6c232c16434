"""Random keys, and the noise of training.

The key of a step is jax.random.fold_in(stream(seed, name), step). Which numbers
a key stands for is fixed here, whatever the environment says (JAX_...), because
the config alone is to decide them.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

jax.config.update("jax_default_prng_impl", "threefry2x32")
jax.config.update("jax_threefry_partitionable", True)
jax.config.update("jax_random_seed_offset", 0)


def stream(seed: jax.Array | int, name: str) -> jax.Array:
  """Returns the key of a seed's stream, like "init", "data" or "eval"."""
  return _fold_in_name(jax.random.key(seed), name)


def _fold_in_name(key: jax.Array, name: str) -> jax.Array:
  return jax.random.fold_in(key, zlib.crc32(name.encode()))


class Noise(NamedTuple):
  """What training draws beside a batch's examples, as for dropout.

  The noise of an example is a function of the key and of its index: the same in
  the whole batch and in any part of it.
  """

  key: jax.Array  # of the batch
  index: jax.Array  # [B] int32, places of these examples in the whole batch

  def fold_in(self, name: str) -> "Noise":
    """Returns independent noise for the same examples, by name."""
    return self._replace(key=_fold_in_name(self.key, name))

  def draw(self, draw_one: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Returns draw_one(key) for the key of each example, stacked [B, ...]."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(self.key, self.index)
    return jax.vmap(draw_one)(keys)

  def dropout_mask(self, shape: Sequence[int], rate: float) -> jax.Array:
    """Returns a mask [B, *shape] bool, False with probability `rate`.

    Every entry's number is hashed with two words of the key: a tenth of the
    operations that threefry takes, and nothing to store for the backward pass,
    where a fusion draws it again.
    """
    first, second = jax.random.bits(self.key, (2,), jnp.uint32)
    numbers = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    example_start = self.index.astype(jnp.uint32) * jnp.uint32(math.prod(shape))
    numbers += jnp.expand_dims(example_start, tuple(range(1, 1 + len(shape))))
    bits = _hash(_hash(numbers ^ first) + second)
    return bits >= jnp.uint32(round(rate * 2**32))


def _hash(x: jax.Array) -> jax.Array:
  """Returns a hash of 32-bit words, lowbias32 (C. Wellons, "Prospecting for
  hash functions", 2018): a bijection in which every bit of x affects every bit
  of the result."""
  x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
  x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
  return x ^ (x >> 16)
