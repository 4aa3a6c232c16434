"""Attention with linear biases."""

import jax.numpy as jnp

from lengthgen_jax.attention.positions.encoding import PositionEncoding


class Alibi(PositionEncoding):
  """-slope · distance, slopes 2^(-8h/H) (Press et al. 2022).

  Distance is |key's index - row's index|, both counted from the left end of
  their own sequence: in self-attention the usual i - j, in cross-attention the
  gap between the output row's index and the source token's, the plain transfer
  of a definition that was made for one sequence.
  """

  additive = True

  def bias(self, rows, keys, causal):
    slopes = 2.0 ** (-8.0 * jnp.arange(1, self.heads + 1) / self.heads)
    distance = jnp.abs(keys.index - rows.index[:, None])
    return (-slopes[:, None, None] * distance)[None]
