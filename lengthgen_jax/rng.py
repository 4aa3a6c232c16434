"""Named random streams: key = fold_in(stream(seed, name), step)."""

import zlib

import jax


def stream(seed, name: str) -> jax.Array:
  """The key of stream `name` ("init", "data", "dropout", "eval") of a seed."""
  return jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))
