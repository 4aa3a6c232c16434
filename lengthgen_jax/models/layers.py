"""One attention, one block."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.attention.kernel import (
  CLOSED,
  Gathered,
  biased_attention,
  gathered_attention,
)
from lengthgen_jax.attention.positions import rotate
from lengthgen_jax.attention.temperature import TEMPERATURES, temper
from lengthgen_jax.models.config import ModelConfig


class Attention(nn.Module):
  """Multi-head attention with an additive bias, for every site."""

  config: ModelConfig

  def setup(self):
    config = self.config
    dense = partial(
      nn.DenseGeneral, dtype=config.dtype, use_bias=config.dense_bias
    )
    heads = (config.num_heads, config.head_dim)
    self.query, self.key, self.value = dense(heads), dense(heads), dense(heads)
    self.out = dense(config.emb_dim, axis=(-2, -1))
    if config.learned_bias_scale:
      self.bias_scale = self.param("bias_scale", nn.initializers.ones, ())
    kind = TEMPERATURES[config.temperature.kind]
    shape = (config.num_heads,) if kind.per_head else ()
    self.tau_scale = self.tau_offset = None
    if kind.size:
      start = nn.initializers.constant(config.temperature.initial)
      self.tau_scale = config.temperature.initial
      if kind.learned:
        self.tau_scale = self.param("temperature", start, shape)
    if kind.offset:
      ones = nn.initializers.ones
      self.tau_offset = self.param("temperature_offset", ones, shape)

  def key_value(self, inputs_BxSxD, index_S):
    """Keys and values [B, S, H, K] of inputs at positions `index_S`."""
    key = self.key(inputs_BxSxD)
    if self.config.positions.kind == "rope":
      key = rotate(key, index_S)
    return key, self.value(inputs_BxSxD)

  def _scaled(self, bias_HxTxS):
    """The bias times a learned factor; closed cells stay closed."""
    if isinstance(bias_HxTxS, Gathered):
      return bias_HxTxS._replace(bias=self._scaled(bias_HxTxS.bias))
    closed = bias_HxTxS == CLOSED
    scaled = self.bias_scale * jnp.where(closed, 0.0, bias_HxTxS)
    return jnp.where(closed, CLOSED, scaled)

  def __call__(self, inputs_BxTxD, index_T, key_value, bias_HxTxS, size_BxT):
    """Attends from inputs to `key_value`; returns (out [B, T, D], acts).

    A Gathered bias visits the open keys alone, and leaves no activations. The
    softmax has the temperature of `size_BxT` (attention.temperature.sizes).
    """
    if self.config.learned_bias_scale:
      bias_HxTxS = self._scaled(bias_HxTxS)
    query = self.query(inputs_BxTxD)
    if self.config.positions.kind == "rope":
      query = rotate(query, index_T)
    if size_BxT is not None:
      query = temper(
        self.config.temperature,
        query,
        size_BxT,
        self.tau_scale,
        self.tau_offset,
      )
    if isinstance(bias_HxTxS, Gathered):
      return self.out(gathered_attention(query, *key_value, bias_HxTxS)), {}
    context, weights, scores = biased_attention(query, *key_value, bias_HxTxS)
    return self.out(context), {"weights": weights, "scores": scores}


class Mlp(nn.Module):
  """Two dense layers."""

  config: ModelConfig

  @nn.compact
  def __call__(self, x_BxTxD):
    activation = {"relu": nn.relu, "gelu": nn.gelu}[self.config.activation]
    dense = partial(
      nn.Dense, dtype=self.config.dtype, use_bias=self.config.dense_bias
    )
    x = dense(self.config.mlp_dim, name="wi")(x_BxTxD)
    return dense(self.config.emb_dim, name="wo")(activation(x))


class Block(nn.Module):
  """Self-attention, cross-attention if there is a memory, MLP."""

  config: ModelConfig
  cross: bool

  def setup(self):
    self.self_attention = Attention(self.config)
    self.mlp = Mlp(self.config)
    names = ["self_attention", "mlp"]
    if self.cross:
      self.cross_attention = Attention(self.config)
      names.insert(1, "cross_attention")
    if self.config.norm == "block_end":
      self.block_end_layer_norm = normalization(self.config)
    elif self.config.norm != "none":
      for name in names:
        setattr(self, self._norm_name(name), normalization(self.config))
    self.dropout = nn.Dropout(self.config.dropout_rate)

  def _norm_name(self, name: str) -> str:
    return f"{self.config.norm}_{name}_layer_norm"

  def _normalize(self, name: str, x):
    return getattr(self, self._norm_name(name))(x)

  def _enter(self, name: str, x):
    return self._normalize(name, x) if self.config.norm == "pre" else x

  def _leave(self, name: str, x, update, train: bool):
    x = x + self.dropout(update, deterministic=not train)
    return self._normalize(name, x) if self.config.norm == "post" else x

  def self_key_value(self, x, index_T):
    """Keys and values of this block's self-attention."""
    inputs = self._enter("self_attention", x)
    return self.self_attention.key_value(inputs, index_T)

  def cross_key_value(self, memory, index_S):
    """Keys and values of this block's cross-attention."""
    return self.cross_attention.key_value(memory, index_S)

  def __call__(self, x, index_T, self_kv, cross_kv, bias, sizes, train: bool):
    """Applies the block.

    Args:
      x: [B, T, D] residual stream.
      index_T: positions of the rows.
      self_kv: keys and values of self-attention, maybe a cache.
      cross_kv: keys and values of cross-attention, or None.
      bias: {"self": [H, T, S], "cross": [H, T, S]}.
      sizes: {"self": n, "cross": n} of the softmax temperature, or Nones.
      train: whether dropout is on.

    Returns:
      The residual stream and a dict of activations.
    """
    acts = {}
    out, acts["self"] = self.self_attention(
      self._enter("self_attention", x),
      index_T,
      self_kv,
      bias["self"],
      sizes["self"],
    )
    x = self._leave("self_attention", x, out, train)
    if self.cross:
      out, acts["cross"] = self.cross_attention(
        self._enter("cross_attention", x),
        index_T,
        cross_kv,
        bias["cross"],
        sizes["cross"],
      )
      x = self._leave("cross_attention", x, out, train)
    acts["before_mlp"] = x
    x = self._leave("mlp", x, self.mlp(self._enter("mlp", x)), train)
    if self.config.norm == "block_end":
      x = self.block_end_layer_norm(x)
    acts["after_mlp"] = x
    return x, acts


def normalization(config: ModelConfig) -> nn.Module:
  """Layer normalization, or its root-mean-square form."""
  kind = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}[config.norm_kind]
  return kind(dtype=config.dtype)


def layer_bias(bias_NxHxTxS, layer: int):
  """[H, T, S] of a layer, dense or Gathered; one bias may serve all layers."""
  return jax.tree.map(lambda x: x[layer if len(x) > 1 else 0], bias_NxHxTxS)


def write_rows(cache, key_value, row):
  """Keys and values [B, L, H, K] with new ones from `row` on."""
  return jax.tree.map(
    lambda old, new: jax.lax.dynamic_update_slice_in_dim(
      old, new.astype(old.dtype), row, axis=1
    ),
    cache,
    key_value,
  )


def embedding(config: ModelConfig) -> nn.Embed:
  """Token embedding of unit variance, as large as a sinusoid beside it."""
  return nn.Embed(
    config.vocab_size,
    config.emb_dim,
    dtype=config.dtype,
    embedding_init=jax.nn.initializers.normal(1.0),
  )


def position_table(config: ModelConfig) -> nn.Embed:
  """The learned position table, T rows if the index is cyclic."""
  rows = config.positions.cyclic_period or config.positions.table
  return nn.Embed(
    rows,
    config.emb_dim,
    dtype=config.dtype,
    embedding_init=jax.nn.initializers.normal(0.02),
  )


def logits_layer(config: ModelConfig) -> nn.Dense:
  """The output layer, float32 whatever the compute type is."""
  return nn.Dense(
    config.vocab_size, dtype=jnp.float32, use_bias=config.dense_bias
  )
