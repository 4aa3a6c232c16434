"""This module computes scaled dot-product attention with an additive bias.

The bias is dense, or gathered. Shapes: B batch, T rows, S keys, H heads, K head
size, N layers, G keys that a row sees at most. A bias of all layers has a
leading axis N or 1; `layer` selects one.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

CLOSED = float("-inf")
LOWEST = -1e30  # below every score, above closed


class Dense(struct.PyTreeNode):
  """A dense bias has a value on every pair of row and key.

  Attributes:
    values: [N or 1, B or 1, H or 1, T, S] float32, without N for one layer.
  """

  values: jax.Array
  equations: ClassVar = ("bhtk,bhsk->bhts", "bhts,bhsk->bhtk")

  def layer(self, n: int) -> "Dense":
    """Returns the bias of layer n."""
    return Dense(self.values[n if len(self.values) > 1 else 0])

  def near(self, x_BxHxSxK: jax.Array) -> jax.Array:
    """Returns keys or values in the layout that `equations` expect."""
    return x_BxHxSxK

  def parts(self, heads: int) -> tuple[tuple[np.ndarray, "Dense"], ...]:
    """Returns pairs (heads, bias) of heads that are treated alike."""
    return ((np.arange(heads), self),)


class Gathered(struct.PyTreeNode):
  """A gathered bias opens at most G keys of every row, at a cost of T·G.

  Attributes:
    values: [N or 1, B or 1, H, T, G] float32, -inf where there is no key.
    index: [N or 1, B or 1, H, T, G] int32, the keys; arbitrary where the bias
      is closed. No key is open twice.
    rest: bias [1, B or 1, 1, T, S] of the heads that see everything, or None.
    open_heads: for every layer (or once), the heads that `rest` is for.
  """

  values: jax.Array
  index: jax.Array
  rest: jax.Array | None = None
  open_heads: tuple[tuple[int, ...], ...] = struct.field(
    pytree_node=False, default=((),)
  )
  equations: ClassVar = ("bhtk,bhtgk->bhtg", "bhtg,bhtgk->bhtk")

  def layer(self, n: int) -> "Gathered":
    """Returns the bias of layer n."""
    take = lambda x: x[n if len(x) > 1 else 0]
    return Gathered(
      take(self.values),
      take(self.index),
      None if self.rest is None else self.rest[0],
      (take(self.open_heads),),
    )

  def near(self, x_BxHxSxK: jax.Array) -> jax.Array:
    """Looks up the keys or values of every row, [B, H, T, G, K]."""
    heads = jnp.arange(self.index.shape[1])[:, None, None]
    if len(self.index) == 1:  # the same keys for the whole batch
      return x_BxHxSxK[:, heads, self.index[0]]
    return jax.vmap(lambda x, i: x[heads, i])(x_BxHxSxK, self.index)

  def parts(
    self, heads: int
  ) -> tuple[tuple[np.ndarray, "Dense | Gathered"], ...]:
    """Returns pairs (heads, bias) of heads that are treated alike."""
    dense = np.array(self.open_heads[0], int)
    if not len(dense):
      return ((np.arange(heads), self),)
    lined = np.setdiff1d(np.arange(heads), dense)
    bias = Gathered(self.values[:, lined], self.index[:, lined])
    parts = ((lined, bias), (dense, Dense(self.rest)))
    return parts if len(lined) else parts[1:]


def attend(
  query_BxHxTxK: jax.Array,
  key_BxHxSxK: jax.Array,
  value_BxHxSxK: jax.Array,
  bias: Dense | Gathered,
  tau: jax.Array | None,
  precision: str,
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Computes softmax(τ · q·k / sqrt(K) + bias) · v, in float32 or wider inside.

  A row whose keys are all closed (bias -inf) has zero weights and so a zero
  context vector; its gradients are zero too.

  Args:
    query_BxHxTxK: queries of T rows.
    key_BxHxSxK: keys.
    value_BxHxSxK: values.
    bias: Dense or Gathered of one layer: causal, padding and scaffold terms.
    tau: softmax temperature, broadcastable to [B, H, T, 1], or None.
    precision: of the matrix products.

  Returns:
    context [B, H, T, K] in the dtype of `value`, and a dict of "weights" [B, H,
    T, S or G] and "scores" of the same shape, the scaled products before bias;
    the dict is empty where heads are treated in two ways.
  """
  query = query_BxHxTxK * query_BxHxTxK.shape[-1] ** -0.5
  parts = bias.parts(query.shape[1])
  if len(parts) == 1:
    bias = parts[0][1]
    return _attend(query, key_BxHxSxK, value_BxHxSxK, bias, tau, precision)
  contexts, order = [], np.concatenate([heads for heads, _ in parts])
  for heads, part in parts:
    pick = lambda x, heads=heads: x[:, heads]
    part_tau = tau if tau is None or tau.shape[1] == 1 else tau[:, heads]
    inputs = map(pick, (query, key_BxHxSxK, value_BxHxSxK))
    contexts.append(_attend(*inputs, part, part_tau, precision)[0])
  context = jnp.concatenate(contexts, axis=1)[:, np.argsort(order)]
  return context, {}


def _attend(query, key, value, bias, tau, precision):
  """Computes `attend` where all heads are treated alike and queries are
  scaled."""
  scoring, mixing = bias.equations
  scores = jnp.einsum(
    scoring,
    query,
    bias.near(key),
    preferred_element_type=jnp.promote_types(jnp.float32, query.dtype),
    precision=precision,
  )
  scores = scores if tau is None else scores * tau
  weights = masked_softmax(scores + bias.values)
  context = jnp.einsum(
    mixing, weights.astype(value.dtype), bias.near(value), precision=precision
  )
  return context, {"weights": weights, "scores": scores}


@jax.custom_jvp
def masked_softmax(logits: jax.Array) -> jax.Array:
  """Returns the softmax over the last axis, zeros where every logit is -inf."""
  # Floors instead of selects, which break XLA's fusion on CPU (6 % of a step).
  # There is one division per row.
  peak = jnp.maximum(logits.max(axis=-1, keepdims=True), LOWEST)
  unnormalized = jnp.exp(logits - peak)
  total = unnormalized.sum(axis=-1, keepdims=True)
  return unnormalized * (1.0 / jnp.maximum(total, -1.0 / LOWEST))


@masked_softmax.defjvp
def _masked_softmax_jvp(primals, tangents):
  """Computes the derivative from the weights alone, in one backward pass."""
  weights, change = masked_softmax(*primals), tangents[0]
  mean = (weights * change).sum(axis=-1, keepdims=True)
  return weights, weights * (change - mean)
