"""This module implements attention with linear biases."""

import jax
import jax.numpy as jnp

from lengthgen_jax.attention.positions.encoding import PositionEncoding
from lengthgen_jax.coordinates import Coordinates


class Alibi(PositionEncoding):
  """Alibi adds -slope · distance with slopes 2^(-8h/H) (Press et al. 2022).

  Distance is |key's index - row's index|, both counted from the left end of
  their own sequence. In self-attention that is the usual i - j. In
  cross-attention it is the gap between the output row's index and the source
  token's, the plain transfer of a definition that was made for one sequence.
  """

  additive = True

  def bias(
    self, rows: Coordinates, keys: Coordinates, causal: bool
  ) -> jax.Array:
    """Returns the linear bias [1, H, T, S]."""
    slopes = 2.0 ** (-8.0 * jnp.arange(1, self.heads + 1) / self.heads)
    distance = jnp.abs(keys.index - rows.index[:, None])
    return (-slopes[:, None, None] * distance)[None]
