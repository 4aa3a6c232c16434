"""Scaled dot-product attention with an additive bias, dense or sparse.

Shapes: B batch, T rows (queries), S keys, H heads, K head size, N layers, G the
largest number of keys that a row sees. The arrays of a bias have a leading axis
of N layers, or of 1 if all layers share them; `layer` returns the bias of one
layer, without this axis, which all other methods expect.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from lengthgen_jax.attention.normalizers import (
  NORMALIZERS,
  SOFTMAX,
  AttentionConfig,
)
from lengthgen_jax.coordinates import Array

CLOSED = float("-inf")  # the bias of a key that a row does not see


def _of_layer(x, n: int):
  return x[n if len(x) > 1 else 0]


class DenseBias(struct.PyTreeNode):
  """A value for every pair of row and key."""

  values: Array  # [N or 1, B or 1, H or 1, T, S] float32
  # queries with keys, weights with values, both as `lookup` returns them
  einsums: ClassVar = ("bhtk,bhsk->bhts", "bhts,bhsk->bhtk")

  def layer(self, n: int) -> "DenseBias":
    return DenseBias(_of_layer(self.values, n))

  @property
  def key_index(self) -> jax.Array:
    """The position of every key, [S]."""
    return jnp.arange(self.values.shape[-1])

  def lookup(self, x_BxHxSxK: jax.Array) -> jax.Array:
    """Returns the keys or values that a row sees: all of them."""
    return x_BxHxSxK

  def head_groups(
    self, num_heads: int
  ) -> tuple[tuple[np.ndarray, "DenseBias"], ...]:
    """Returns (indices of heads, bias) of each group of heads that are computed
    together: all."""
    return ((np.arange(num_heads), self),)


class SparseBias(struct.PyTreeNode):
  """At most G keys for every row, at a cost of T·G; some heads may be dense.

  `index` has the positions of the keys, or, in decode.stream, their indices in
  a cache or a table. No position is open twice in a row.
  """

  # [N or 1, B or 1, H, T, G] float32, CLOSED where there is no key
  values: Array
  index: Array  # the same shape, int32; arbitrary where the value is CLOSED
  # [1, B or 1, 1, T, S], the bias of the dense heads
  dense_values: Array | None = None
  # their indices in every layer, or once for all layers
  dense_heads: tuple[tuple[int, ...], ...] = struct.field(
    pytree_node=False, default=((),)
  )
  einsums: ClassVar = ("bhtk,bhtgk->bhtg", "bhtg,bhtgk->bhtk")

  def layer(self, n: int) -> "SparseBias":
    return SparseBias(
      _of_layer(self.values, n),
      _of_layer(self.index, n),
      None if self.dense_values is None else self.dense_values[0],
      (_of_layer(self.dense_heads, n),),
    )

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

  def head_groups(
    self, num_heads: int
  ) -> tuple[tuple[np.ndarray, "DenseBias | SparseBias"], ...]:
    """Returns (indices, bias) of the sparse and of the dense heads, if any."""
    dense_heads = np.array(self.dense_heads[0], int)
    sparse_heads = np.setdiff1d(np.arange(num_heads), dense_heads)
    if self.dense_values is None or not len(dense_heads):
      return ((sparse_heads, self),)
    dense_group = dense_heads, DenseBias(self.dense_values)
    if not len(sparse_heads):
      return (dense_group,)
    bias = SparseBias(self.values[:, sparse_heads], self.index[:, sparse_heads])
    return ((sparse_heads, bias), dense_group)


def attend(
  query_BxHxTxK: jax.Array,
  key_BxHxSxK: jax.Array,
  value_BxHxSxK: jax.Array,
  bias: DenseBias | SparseBias,
  tau: jax.Array | None,
  precision: str,
  config: AttentionConfig = SOFTMAX,
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Returns softmax(τ · q·k / sqrt(K) + bias) · v [B, H, T, K], or the same
  with another normalizer, and its activations.

  These are "weights" [B, H, T, S or G] and "scores" (τ · q·k / sqrt(K)), both
  float32 or wider; there are none if some heads are sparse and others dense. A
  row whose keys are all CLOSED has zero weights, a zero context and zero
  gradients.
  """
  query = query_BxHxTxK * query_BxHxTxK.shape[-1] ** -0.5
  inputs = query, key_BxHxSxK, value_BxHxSxK
  groups = bias.head_groups(query.shape[1])
  if len(groups) == 1:
    return _attend(*inputs, groups[0][1], tau, precision, config)
  contexts = []
  for heads, group_bias in groups:
    query, key, value = (x[:, heads] for x in inputs)
    group_tau = tau if tau is None or tau.shape[1] == 1 else tau[:, heads]
    context, _ = _attend(
      query, key, value, group_bias, group_tau, precision, config
    )
    contexts.append(context)
  order = np.argsort(np.concatenate([heads for heads, _ in groups]))
  return jnp.concatenate(contexts, axis=1)[:, order], {}


def _attend(query, key, value, bias, tau, precision, config):
  """`attend` for heads that are all dense or all sparse."""
  score_equation, context_equation = bias.einsums
  scores = jnp.einsum(
    score_equation,
    query,
    bias.lookup(key),
    preferred_element_type=jnp.promote_types(jnp.float32, query.dtype),
    precision=precision,
  )
  scores = scores if tau is None else scores * tau
  weights = NORMALIZERS[config.normalizer].weights(
    scores + bias.values, bias.key_index, config
  )
  context = jnp.einsum(
    context_equation,
    weights.astype(value.dtype),
    bias.lookup(value),
    precision=precision,
  )
  return context, {"weights": weights, "scores": scores}
