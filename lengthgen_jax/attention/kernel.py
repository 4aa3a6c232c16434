"""This module computes scaled dot-product attention with an additive bias.

The bias is dense or sparse. Shapes: B batch, T rows (queries), S keys, H heads,
K head size, N layers, G the largest number of keys that a row sees. The arrays
of a bias have a leading axis of N layers, or of 1 if all layers share them;
`layer` returns the bias of one layer, whose arrays lack this axis and are what
all other methods expect.
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
  """Returns x[n], or x[0] if there is one entry, which all layers share."""
  return x[n if len(x) > 1 else 0]


class DenseBias(struct.PyTreeNode):
  """A DenseBias has a value for every pair of row and key.

  Attributes:
    values: [N or 1, B or 1, H or 1, T, S] float32.
    einsums: equations of the product of queries with keys, and of weights with
      values; keys and values are those that `lookup` returns.
  """

  values: Array
  einsums: ClassVar = ("bhtk,bhsk->bhts", "bhts,bhsk->bhtk")

  def layer(self, n: int) -> "DenseBias":
    """Returns the bias of layer n."""
    return DenseBias(_of_layer(self.values, n))

  @property
  def key_index(self) -> jax.Array:
    """Returns the position of every key, [S] int."""
    return jnp.arange(self.values.shape[-1])

  def lookup(self, x_BxHxSxK: jax.Array) -> jax.Array:
    """Returns the keys or values that a row sees: all of them, [B, H, S,
    K]."""
    return x_BxHxSxK

  def head_groups(
    self, num_heads: int
  ) -> tuple[tuple[np.ndarray, "DenseBias"], ...]:
    """Returns (indices of heads, bias) of a single group, which has all
    heads."""
    return ((np.arange(num_heads), self),)


class SparseBias(struct.PyTreeNode):
  """A SparseBias opens at most G keys of every row, at a cost of T·G.

  Some heads may be dense: they have a value for every key instead.

  Attributes:
    values: [N or 1, B or 1, H, T, G] float32, CLOSED where there is no key.
    index: [N or 1, B or 1, H, T, G] int32, the positions of the keys, or, in
      decode.stream, their indices in a cache or a table; arbitrary where the
      value is CLOSED. No position is open twice in a row.
    dense_values: [1, B or 1, 1, T, S] float32, the bias of the dense heads;
      None if there are none.
    dense_heads: the indices of the dense heads of every layer, or a single
      tuple of them for all layers.
    einsums: as in DenseBias.
  """

  values: Array
  index: Array
  dense_values: Array | None = None
  dense_heads: tuple[tuple[int, ...], ...] = struct.field(
    pytree_node=False, default=((),)
  )
  einsums: ClassVar = ("bhtk,bhtgk->bhtg", "bhtg,bhtgk->bhtk")

  def layer(self, n: int) -> "SparseBias":
    """Returns the bias of layer n."""
    return SparseBias(
      _of_layer(self.values, n),
      _of_layer(self.index, n),
      None if self.dense_values is None else self.dense_values[0],
      (_of_layer(self.dense_heads, n),),
    )

  @property
  def key_index(self) -> Array:
    """Returns the positions of the keys of each row, [B or 1, H, T, G]."""
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
    """Returns (indices of heads, bias) of the sparse heads and of the dense
    ones; a group without heads is left out."""
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
  """Computes softmax(τ · q·k / sqrt(K) + bias) · v, or the same with another
  normalizer.

  Scores and weights are float32 or wider. A row whose keys are all CLOSED has
  zero weights and so a zero context vector; its gradients are zero too.

  Args:
    query_BxHxTxK, key_BxHxSxK, value_BxHxSxK: those of all heads; the queries
      are not scaled yet.
    bias: the bias of one layer, masks included.
    tau: τ, [B or 1, H or 1, T or 1, 1]; None for 1.
    precision: JAX's precision of the matrix products, like "highest".
    config: the normalizer and its α.

  Returns:
    context [B, H, T, K] in the dtype of `value`, and a dict of "weights" [B, H,
    T, S or G] and, of the same shape, "scores": τ · q·k / sqrt(K). The dict is
    empty if some heads are sparse and others dense.
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
  """Computes `attend` for heads that are all dense or all sparse; the queries
  are scaled already."""
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
