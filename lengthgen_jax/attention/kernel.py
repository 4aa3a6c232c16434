"""Scaled dot-product attention with an additive bias: dense, or gathered."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

CLOSED = float("-inf")


class Gathered(NamedTuple):
  """A bias that opens at most K keys of every row.

  Stands wherever a bias [..., H, T, S] does, at a cost of T·K instead of T·S.

  Attributes:
    index: [..., H, T, K] int32, the keys; anything where the bias is closed.
      No key is open twice.
    bias: [..., H, T, K] float32, -inf where there is no key.
  """

  index: jax.Array
  bias: jax.Array


def biased_attention(query_BxTxHxK, key_BxSxHxK, value_BxSxHxK, bias_HxTxS):
  """softmax(q·k / sqrt(K) + bias) · v, in float32 inside.

  A row whose keys are all closed (bias -inf) has zero weights and so a zero
  context vector; its gradients are zero too.

  Args:
    query_BxTxHxK: queries of T rows.
    key_BxSxHxK: keys.
    value_BxSxHxK: values.
    bias_HxTxS: sum of causal, padding and scaffold terms, broadcastable
      to [B, H, T, S].

  Returns:
    context [B, T, H, K] in the dtype of `value`, weights [B, H, T, S], and
    scores [B, H, T, S], the scaled products before bias and mask.
  """
  head_dim = query_BxTxHxK.shape[-1]
  query_BxTxHxK = query_BxTxHxK * head_dim**-0.5
  scores = jnp.einsum(
    "bthk,bshk->bhts",
    query_BxTxHxK,
    key_BxSxHxK,
    preferred_element_type=jnp.float32,
  )
  weights = masked_softmax(scores + bias_HxTxS)
  context = jnp.einsum(
    "bhts,bshk->bthk", weights.astype(value_BxSxHxK.dtype), value_BxSxHxK
  )
  return context, weights, scores


def masked_softmax(logits):
  """Softmax over the last axis; zeros where every logit is -inf."""
  peak = jax.lax.stop_gradient(logits.max(axis=-1, keepdims=True))
  unnormalized = jnp.exp(logits - jnp.where(peak == CLOSED, 0.0, peak))
  total = unnormalized.sum(axis=-1, keepdims=True)
  return unnormalized / jnp.where(total == 0.0, 1.0, total)


def gathered_attention(query_BxTxHxK, key_BxSxHxK, value_BxSxHxK, bias):
  """`biased_attention` over the keys that a `Gathered` [H, T, K] names.

  Returns:
    context [B, T, H, K] in the dtype of `value`.
  """
  heads = jnp.arange(bias.index.shape[0])[:, None, None]
  head_dim = query_BxTxHxK.shape[-1]
  query_BxTxHxK = query_BxTxHxK * head_dim**-0.5
  # Indices on two axes side by side: [B, H, T, lines, head size].
  near = lambda x: x[:, bias.index, heads]
  scores = jnp.einsum(
    "bthk,bhtlk->bhtl",
    query_BxTxHxK,
    near(key_BxSxHxK),
    preferred_element_type=jnp.float32,
  )
  weights = masked_softmax(scores + bias.bias)
  return jnp.einsum(
    "bhtl,bhtlk->bthk",
    weights.astype(value_BxSxHxK.dtype),
    near(value_BxSxHxK),
  )
