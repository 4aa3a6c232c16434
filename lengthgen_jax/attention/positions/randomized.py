"""This module implements randomized positions."""

import jax
import jax.numpy as jnp

from lengthgen_jax.attention.positions.encoding import (
  PositionEncoding,
  sinusoid,
)
from lengthgen_jax.coordinates import Places
from lengthgen_jax.rng import Noise


class Randomized(PositionEncoding):
  """This encoding adds sinusoids of an ordered random draw of positions.

  Ruoss et al. 2023: the L indices of a sequence become L of the `table`
  positions there are, drawn without replacement and sorted, anew for every
  batch; in tests one draw serves all, so that they can be repeated.
  """

  limited = "index"
  random = True

  def embed(
    self, x_BxLxD: jax.Array, at: Places, noise: Noise | None
  ) -> jax.Array:
    """Adds the sinusoids of the positions that were drawn."""
    key = jax.random.key(0) if noise is None else noise.key
    order = jax.random.uniform(key, (self.config.table,))
    # In a random order of all positions, the first `size` are chosen.
    rank = jnp.argsort(jnp.argsort(order))
    positions = jnp.arange(self.config.table)
    chosen = jnp.where(rank < at.size, positions, self.config.table)
    index = jnp.clip(jnp.atleast_2d(at.index), 0, self.config.table - 1)
    ordered = jnp.sort(chosen, axis=-1)
    position = jnp.take_along_axis(ordered, index, axis=-1)
    waves = sinusoid(position, self.features)
    return x_BxLxD + waves.astype(x_BxLxD.dtype)
