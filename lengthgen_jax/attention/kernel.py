"""Scaled dot-product attention with an additive bias, dense or sparse.

Shapes: B batch, T rows (queries), S keys, H heads, K head size, N layers, G the
largest number of keys that a row sees. The arrays of a bias have a leading axis
of N layers, or of 1 if all layers share them; `entry` returns the bias of one
layer, without this axis, which all methods expect.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from lengthgen_jax.attention.normalizers import NORMALIZERS, AttentionConfig
from lengthgen_jax.coordinates import Array

CLOSED = float("-inf")  # the bias of a key that a row does not see


def entry(arrays: Any, index: int) -> Any:
  """Returns the entry `index` of the first axis of every array in a tree, or
  the only one, which all share."""
  return jax.tree.map(lambda x: x[index if len(x) > 1 else 0], arrays)


class DenseBias(struct.PyTreeNode):
  """A value for every pair of row and key."""

  values: Array  # [N or 1, B or 1, H or 1, T, S] float32
  # queries with keys, weights with values, both as `lookup` returns them
  einsums: ClassVar = ("bhtk,bhsk->bhts", "bhts,bhsk->bhtk")

  @property
  def key_index(self) -> jax.Array:
    """The position of every key, [S]."""
    return jnp.arange(self.values.shape[-1])

  def lookup(self, x_BxHxSxK: jax.Array) -> jax.Array:
    """Returns the keys or values that a row sees: all of them."""
    return x_BxHxSxK


class SparseBias(struct.PyTreeNode):
  """At most G keys for every row, at a cost of T·G.

  `index` has the positions of the keys, or, in decode.stream, their indices in
  a cache or a table. No position is open twice in a row.
  """

  # [N or 1, B or 1, H, T, G] float32, CLOSED where there is no key
  values: Array
  index: Array  # the same shape, int32; arbitrary where the value is CLOSED
  einsums: ClassVar = ("bhtk,bhtgk->bhtg", "bhtg,bhtgk->bhtk")

  @property
  def key_index(self) -> Array:
    """The positions of the keys of each row, [B or 1, H, T, G]."""
    return self.index

  def lookup(self, x_BxHxSxK: jax.Array) -> jax.Array:
    """Returns the keys or values that each row sees: [B, H, T, G, K]."""
    heads = jnp.arange(self.index.shape[1])[:, None, None]
    if len(self.index) == 1:  # the same keys for the whole batch
      return x_BxHxSxK[:, heads, self.index[0]]
    return jax.vmap(lambda x, i: x[heads, i])(x_BxHxSxK, self.index)


def attend(
  query_BxHxTxK: jax.Array,
  key_BxHxSxK: jax.Array,
  value_BxHxSxK: jax.Array,
  bias: DenseBias | SparseBias,
  tau: jax.Array | None,
  precision: str,
  config: AttentionConfig,
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Returns softmax(τ · q·k / sqrt(K) + bias) · v [B, H, T, K], or the same
  with another normalizer, and its activations.

  These are "weights" [B, H, T, S or G] and "scores" (τ · q·k / sqrt(K)), both
  float32 or wider. A row whose keys are all CLOSED has zero weights, a zero
  context and zero gradients.
  """
  query = query_BxHxTxK * query_BxHxTxK.shape[-1] ** -0.5
  score_equation, context_equation = bias.einsums
  scores = jnp.einsum(
    score_equation,
    query,
    bias.lookup(key_BxHxSxK),
    preferred_element_type=jnp.promote_types(jnp.float32, query.dtype),
    precision=precision,
  )
  scores = scores if tau is None else scores * tau
  weights = NORMALIZERS[config.normalizer].weights(
    scores + bias.values, bias.key_index, config
  )
  context = jnp.einsum(
    context_equation,
    weights.astype(value_BxHxSxK.dtype),
    bias.lookup(value_BxHxSxK),
    precision=precision,
  )
  return context, {"weights": weights, "scores": scores}
