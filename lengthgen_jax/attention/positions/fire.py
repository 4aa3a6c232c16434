"""This module implements functional interpolation for relative positions."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.attention.positions.encoding import PositionEncoding
from lengthgen_jax.coordinates import Coordinates

WIDTH = 32  # of the hidden layer


class Fire(PositionEncoding):
  """Fire adds f(ψ(distance) / ψ(max(i, L))), ψ(x) = log(c·x + 1) (Li et al.
  2024).

  f is a network with one hidden layer, c > 0 and the threshold L are learned,
  and i is the longest distance that a row can have: its own index in causal
  attention. Elsewhere distances are absolute and i is the greater of those to
  both ends. All layers share one f (the paper's FIRE-S).
  """

  additive = True

  def setup(self) -> None:
    """Creates c, L and the two layers of f."""
    self.rate = self.param("rate", nn.initializers.constant(0.1), ())
    self.threshold = self.param("threshold", nn.initializers.constant(32.0), ())
    # Products are exact on every device: a rounded place is another place.
    self.hidden = nn.Dense(WIDTH, precision="highest")
    self.out = nn.Dense(self.heads, precision="highest")

  def bias(
    self, rows: Coordinates, keys: Coordinates, causal: bool
  ) -> jax.Array:
    """Returns the learned bias [B or 1, H, T, S]."""
    relative = keys.index - rows.index[:, None]
    distance = jnp.maximum(-relative, 0) if causal else jnp.abs(relative)
    longest = rows.index[None]
    if not causal:
      longest = jnp.maximum(longest, keys.count() - 1 - longest)
    scale = jnp.abs(self.rate)
    squash = lambda x: jnp.log(scale * x + 1.0)
    longest_squashed = squash(jnp.maximum(longest, jnp.abs(self.threshold)))
    share = squash(distance) / jnp.maximum(longest_squashed[..., None], 1e-6)
    value = self.out(nn.relu(self.hidden(share[..., None])))
    return jnp.moveaxis(value, -1, 1)
