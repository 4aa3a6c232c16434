"""Encodings of other papers, to compare with: no kept run has them.

Shapes: B batch, L tokens, D features, H heads, T rows, S keys.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.attention.positions.encoding import (
  PositionEncoding,
  embedding_table,
  look_up,
  sinusoid,
)

FIRE_WIDTH = 32  # features of the hidden layer


class Randomized(PositionEncoding):
  """Adds sinusoids of random positions in ascending order.

  Ruoss et al. 2023: the indices of a sequence of n tokens become n of the
  positions 0 to config.table - 1, drawn without replacement and sorted, anew
  for every batch. Outside of training the draw is always the same. The L tokens
  may be a part of the sequence, and n is the field `size` of their places.
  """

  limited = "index"

  def embed(self, x_BxLxD, places, noise):
    key = jax.random.key(0) if noise is None else noise.key
    order = jax.random.uniform(key, (self.config.table,))
    # As many positions as the sequence has tokens, the first of a random order.
    rank = jnp.argsort(jnp.argsort(order))
    positions = jnp.arange(self.config.table)
    chosen = jnp.where(rank < places.size, positions, self.config.table)
    index = jnp.clip(jnp.atleast_2d(places.index), 0, self.config.table - 1)
    ordered = jnp.sort(chosen, axis=-1)
    position = jnp.take_along_axis(ordered, index, axis=-1)
    waves = sinusoid(position, self.features)
    return x_BxLxD + waves.astype(x_BxLxD.dtype)


class Abacus(PositionEncoding):
  """Adds a learned vector for a digit's place in its number (McLeish et al.
  2024).

  Digits of the same significance have the same vector; `$` and operators of the
  prompt have none. In training all places of an example are shifted by one
  random number, so that greater places than its own are seen. Here a decoder
  input has the place of the token that must be predicted from it, in the paper
  its own.
  """

  of_digits = True
  limited = "place"
  random_start = True
  marks = False  # whether `$` and operators of the prompt have a place too

  @nn.compact
  def embed(self, x_BxLxD, places, noise):
    start = 0
    if noise is not None:
      limit = self.config.random_start
      start = noise.draw(lambda key: jax.random.randint(key, (1,), 0, limit))
    rows, vectors = self.config.table, jnp.zeros(())
    for axis in range(places.place.shape[-1]):
      table = embedding_table(rows, self.features, f"axis_{axis}")
      vectors += look_up(table, places.place[..., axis] + start)
    if not self.marks:
      vectors = jnp.where(places.digit[..., None], vectors, 0.0)
    return x_BxLxD + vectors.astype(x_BxLxD.dtype)


class Coupling(Abacus):
  """Adds a learned vector for every token's place, `$` and operators included.

  Cho et al. 2024: digits of the same significance, and the output computed from
  them, have one position id; in training all ids of an example are shifted by
  one random number. Here a decoder input has the place of the token that must
  be predicted from it.
  """

  marks = True


class Fire(PositionEncoding):
  """Adds f(ψ(distance) / ψ(max(i, L))) to scores, ψ(x) = log(|c|·x + 1) (Li et
  al. 2024).

  f is a network with one hidden layer, c (`rate`) and L (`threshold`, of which
  the absolute value counts) are learned, and i is the longest distance that a
  row can have: its own index in causal attention. Elsewhere distances count in
  both directions, and i is the distance to the farther end of the keys. All
  layers share one f (the paper's FIRE-S).
  """

  def setup(self) -> None:
    self.rate = self.param("rate", nn.initializers.constant(0.1), ())
    self.threshold = self.param("threshold", nn.initializers.constant(32.0), ())
    # Accelerators round the factors of products by default, and a rounded
    # distance is that of another key.
    self.hidden = nn.Dense(FIRE_WIDTH, precision="highest")
    self.out = nn.Dense(self.heads, precision="highest")

  def bias(self, rows, keys, causal):
    relative = keys.index - rows.index[:, None]
    distance = jnp.maximum(-relative, 0) if causal else jnp.abs(relative)
    longest = rows.index[None]
    if not causal:
      longest = jnp.maximum(longest, keys.num_tokens() - 1 - longest)
    scale = jnp.abs(self.rate)
    psi = lambda x: jnp.log(scale * x + 1.0)
    psi_longest = psi(jnp.maximum(longest, jnp.abs(self.threshold)))
    ratio = psi(distance) / jnp.maximum(psi_longest[..., None], 1e-6)
    bias = self.out(nn.relu(self.hidden(ratio[..., None])))
    return jnp.moveaxis(bias, -1, 1)
