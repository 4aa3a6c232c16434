"""Sines and cosines of an index, a place or a random position."""

import jax
import jax.numpy as jnp

from lengthgen_jax.attention.positions.encoding import (
  PositionEncoding,
  sinusoid,
)


class Sinusoidal(PositionEncoding):
  """Sines and cosines of a token's index (Vaswani et al. 2017, section 3.5)."""

  def embed(self, x_BxLxD, at, key):
    index = self.config.cyclic(at.index)
    return x_BxLxD + sinusoid(index, self.features).astype(x_BxLxD.dtype)


class Coordinates(PositionEncoding):
  """Sines and cosines of a token's place, each axis on its share of features.

  Ours: a digit's place is its offset from its operand's right end, a row's the
  offset of the output that it must say. With the absolute index in their stead
  decoder-only models do not learn addition here.
  """

  def embed(self, x_BxLxD, at, key):
    axes = at.place.shape[-1]
    share = self.features // axes
    sizes = [share] * (axes - 1) + [self.features - share * (axes - 1)]
    waves = [sinusoid(at.place[..., i], size) for i, size in enumerate(sizes)]
    return x_BxLxD + jnp.concatenate(waves, axis=-1).astype(x_BxLxD.dtype)


class Randomized(PositionEncoding):
  """Sinusoids of an ordered random draw of positions (Ruoss et al. 2023).

  The L indices of a sequence become L of the `table` positions there are, drawn
  without replacement and sorted, anew for every batch; in tests one draw for
  all, so that they can be repeated.
  """

  limited = "index"
  random = True

  def embed(self, x_BxLxD, at, key):
    table = self.config.table
    key = jax.random.key(0) if key is None else key
    order = jax.random.uniform(key, (table,))
    # Of a random order of all positions, those of the first `size` numbers.
    rank = jnp.argsort(jnp.argsort(order))
    chosen = jnp.where(rank < at.size, jnp.arange(table), table)
    index = jnp.clip(jnp.atleast_2d(at.index), 0, table - 1)
    position = jnp.take_along_axis(jnp.sort(chosen, axis=-1), index, axis=-1)
    return x_BxLxD + sinusoid(position, self.features).astype(x_BxLxD.dtype)
