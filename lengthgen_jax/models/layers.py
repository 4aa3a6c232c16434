"""This module has the layers of a transformer, and its hyper-parameters.

Shapes: B batch, L positions, T rows (queries), S keys, D features (emb_dim), H
heads, K head size, F hidden features of the MLP.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import get_args

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax import sections
from lengthgen_jax.attention.kernel import CLOSED, DenseBias, SparseBias, attend
from lengthgen_jax.attention.normalizers import AttentionConfig
from lengthgen_jax.attention.positions.encoding import PositionConfig
from lengthgen_jax.attention.temperature import TEMPERATURES, tau
from lengthgen_jax.coordinates import Array
from lengthgen_jax.rng import Noise

NORMS = get_args(sections.Norm)
DTYPES = get_args(sections.Dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(sections.Shape):
  """A ModelConfig has the hyper-parameters of a transformer.

  Attributes:
    vocab_size: V, the number of tokens.
    num_segments: the number of rows of the segment embedding; 1 if there is
      none.
    learned_bias_scale: whether each attention learns a factor on its bias.
    positions: the position encoding.
    temperature: the factor on the scores of every attention.
    attention: how scores become weights: softmax or another normalizer.
  """

  vocab_size: int
  num_segments: int
  learned_bias_scale: bool
  positions: PositionConfig
  temperature: sections.Temperature
  attention: AttentionConfig

  @property
  def head_dim(self) -> int:
    """Returns the head size K = D / H."""
    return self.emb_dim // self.num_heads

  def input_index(self, token: Array, phase: Array, segment: Array) -> Array:
    """Returns the index in `Transformer.every_token` of inputs, elementwise.

    Args:
      token: the inputs' tokens.
      phase: the indices of their positions (`places.index`) modulo
        positions.cyclic_period, 0 without it.
      segment: their `places.segment`, in which the start token belongs to the
        output's segment; it is ignored without a segment embedding.
    """
    period = self.positions.cyclic_period or 1
    segment = segment * (self.num_segments > 1)
    return token + self.vocab_size * (phase + period * segment)


class Attention(nn.Module):
  """This is multi-head attention with an additive bias, for every site."""

  config: ModelConfig

  def setup(self) -> None:
    """Creates the projections, the factor on the bias if it is learned, and the
    parameters of the temperature."""
    config = self.config
    dense = partial(
      nn.DenseGeneral,
      dtype=config.dtype,
      use_bias=config.dense_bias,
      precision=config.precision,
    )
    heads = (config.num_heads, config.head_dim)
    self.query, self.key, self.value = dense(heads), dense(heads), dense(heads)
    self.out = dense(config.emb_dim, axis=(1, 3))
    if config.learned_bias_scale:
      self.bias_scale = self.param("bias_scale", nn.initializers.ones, ())
    kind = TEMPERATURES[config.temperature.kind]
    shape = (config.num_heads,) if kind.per_head else ()
    self.tau_scale = self.tau_offset = None
    if kind.counts:
      self.tau_scale = config.temperature.initial
      if kind.learned:
        init = nn.initializers.constant(config.temperature.initial)
        self.tau_scale = self.param("temperature", init, shape)
    if kind.offset:
      init = nn.initializers.ones
      self.tau_offset = self.param("temperature_offset", init, shape)
    self.num_projections = kind.projections
    if kind.projections:
      self.temperature_projection = dense(
        (kind.projections, config.num_heads),
        dtype=jnp.promote_types(jnp.float32, config.dtype),
      )

  def key_value(
    self, inputs_BxSxD: jax.Array, rotate: Callable
  ) -> tuple[jax.Array, jax.Array]:
    """Returns keys and values, both [B, H, S, K].

    Args:
      inputs_BxSxD: what is attended to.
      rotate: the position encoding's function of keys [B, H, S, K].
    """
    key, value = self.key(inputs_BxSxD), self.value(inputs_BxSxD)
    return rotate(heads_first(key)), heads_first(value)

  def _scaled(self, bias: DenseBias | SparseBias) -> DenseBias | SparseBias:
    """Multiplies the bias by a learned factor; closed cells stay closed."""
    closed = bias.values == CLOSED
    scaled = self.bias_scale * jnp.where(closed, 0.0, bias.values)
    return bias.replace(values=jnp.where(closed, CLOSED, scaled))

  def __call__(
    self,
    inputs_BxTxD: jax.Array,
    rotate: Callable,
    key_value: tuple[jax.Array, jax.Array],
    bias: DenseBias | SparseBias,
    n_BxT: Array | None,
  ) -> tuple[jax.Array, dict]:
    """Attends from inputs to `key_value`.

    Args:
      inputs_BxTxD: the inputs of the rows.
      rotate: the position encoding's function of queries [B, H, T, K].
      key_value: keys and values [B, H, S, K], as the method `key_value` returns
        them; those of a cache if there is one (`update_cache`).
      bias: the bias of this layer.
      n_BxT: the count n that the temperature depends on; None without one.

    Returns:
      The output [B, T, D], and the dict that `attend` returns: weights and
      scores, or nothing if some heads are sparse and others dense.
    """
    if self.config.learned_bias_scale:
      bias = self._scaled(bias)
    query = rotate(heads_first(self.query(inputs_BxTxD)))
    b = self.tau_offset  # `b` of Temperature.value
    if self.num_projections:
      projection = self.temperature_projection(inputs_BxTxD)
      b = jnp.moveaxis(projection, -2, 0)  # [projections, B, T, H]
    config = self.config
    temperature = tau(config.temperature, n_BxT, self.tau_scale, b)
    context, acts = attend(
      query, *key_value, bias, temperature, config.precision, config.attention
    )
    return self.out(context), acts


def heads_first(x_BxLxHxK: jax.Array) -> jax.Array:
  """Transposes to [B, H, L, K], in which each head is contiguous in memory.

  Decoding on a CPU is four to nine times as fast in this layout.
  """
  return jnp.swapaxes(x_BxLxHxK, 1, 2)


class Mlp(nn.Module):
  """This is two dense layers with an activation between them (Vaswani et al.
  2017, section 3.3): `wi` from D to F features, `wo` back to D.
  """

  config: ModelConfig

  @nn.compact
  def __call__(self, x_BxTxD: jax.Array) -> jax.Array:
    """Returns [B, T, D]."""
    activation = {"relu": nn.relu, "gelu": nn.gelu}[self.config.activation]
    dense = partial(
      nn.Dense,
      dtype=self.config.dtype,
      use_bias=self.config.dense_bias,
      precision=self.config.precision,
    )
    x = dense(self.config.mlp_dim, name="wi")(x_BxTxD)
    return dense(self.config.emb_dim, name="wo")(activation(x))


class Block(nn.Module):
  """A Block is self-attention, optional cross-attention, and an MLP.

  Each sublayer's output is added to the residual stream.

  Attributes:
    config: The hyper-parameters.
    cross: Whether there is cross-attention.
  """

  config: ModelConfig
  cross: bool

  def setup(self) -> None:
    """Creates the sublayers and their normalizations."""
    self.self_attention = Attention(self.config)
    self.mlp = Mlp(self.config)
    sublayers = ["self_attention", "mlp"]
    if self.cross:
      self.cross_attention = Attention(self.config)
      sublayers.append("cross_attention")
    # Flax names them like pre_mlp_layer_norm.
    norms = lambda: {
      f"{name}_layer_norm": normalization(self.config) for name in sublayers
    }
    if self.config.norm == "pre":
      self.pre = norms()
    elif self.config.norm == "post":
      self.post = norms()
    elif self.config.norm == "block_end":
      self.block_end_layer_norm = normalization(self.config)

  def sublayer_inputs(self, sublayer: str, x: jax.Array) -> jax.Array:
    """Returns the inputs of a sublayer ("self_attention", "cross_attention" or
    "mlp"): the residual stream x, normalized if `norm` is "pre"."""
    if self.config.norm != "pre":
      return x
    return self.pre[f"{sublayer}_layer_norm"](x)

  def add_to_residual(
    self, sublayer: str, x: jax.Array, update: jax.Array, noise: Noise | None
  ) -> jax.Array:
    """Returns the residual stream x plus a sublayer's output `update`, with
    dropout on it and, if `norm` is "post", the sum normalized."""
    x = x + dropout(self, sublayer, update, noise)
    if self.config.norm != "post":
      return x
    return self.post[f"{sublayer}_layer_norm"](x)

  def residual(self, name: str, x: jax.Array) -> jax.Array:
    """Returns the residual stream x unchanged.

    Probes replace the stream by intercepting this method
    (`nn.intercept_methods`); `name` is its key in the activations.
    """
    return x

  def self_key_value(
    self, x: jax.Array, rotate: Callable
  ) -> tuple[jax.Array, jax.Array]:
    """Returns keys and values of this block's self-attention."""
    inputs = self.sublayer_inputs("self_attention", x)
    return self.self_attention.key_value(inputs, rotate)

  def cross_key_value(
    self, memory: jax.Array, rotate: Callable
  ) -> tuple[jax.Array, jax.Array]:
    """Returns keys and values of this block's cross-attention, from the
    encoder's output `memory` [B, S, D]."""
    return self.cross_attention.key_value(memory, rotate)

  def __call__(
    self,
    x: jax.Array,
    rotate: Callable,
    key_values: dict,
    biases: dict,
    counts: Mapping[str, Array | None],
    noise: Noise | None,
  ) -> tuple[jax.Array, dict]:
    """Applies the block.

    Args:
      x: [B, T, D] residual stream.
      rotate: the position encoding's function of queries [B, H, T, K].
      key_values: keys and values by site, "self" and, if the block has
        cross-attention, "cross".
      biases: the biases of this layer by site.
      counts: by site, the count n that the temperature depends on, or None.
      noise: what dropout is drawn from; None outside of training.

    Returns:
      The residual stream [B, T, D], and the activations: by site what `attend`
      returns, and the residual stream "before_mlp" and "after_mlp".
    """
    acts, attentions = {}, {"self": self.self_attention}
    if self.cross:
      attentions["cross"] = self.cross_attention
    for site, attention in attentions.items():
      sublayer = f"{site}_attention"
      out, acts[site] = attention(
        self.sublayer_inputs(sublayer, x),
        rotate,
        key_values[site],
        biases[site],
        counts[site],
      )
      x = self.add_to_residual(sublayer, x, out, noise)
    x = acts["before_mlp"] = self.residual("before_mlp", x)
    x = self.add_to_residual(
      "mlp", x, self.mlp(self.sublayer_inputs("mlp", x)), noise
    )
    if self.config.norm == "block_end":
      x = self.block_end_layer_norm(x)
    x = acts["after_mlp"] = self.residual("after_mlp", x)
    return x, acts


def dropout(
  module: nn.Module, name: str, x_BxLxD: jax.Array, noise: Noise | None
) -> jax.Array:
  """Sets a fraction `dropout_rate` of the inputs to 0 and scales the others.

  Args:
    module: The module whose config holds the rate. Its path in the model is
      folded into the noise, so that no two modules share a mask.
    name: A name for this call, different for each call in one module.
    x_BxLxD: The inputs.
    noise: What the mask is drawn from; None outside of training, where nothing
      is dropped.
  """
  rate = module.config.dropout_rate
  if noise is None or not rate:
    return x_BxLxD
  layer_noise = noise.fold_in("/".join(("dropout", *module.path, name)))
  mask = layer_noise.dropout_mask(x_BxLxD.shape[1:], rate)
  return jnp.where(mask, x_BxLxD * (1.0 / (1.0 - rate)), 0.0)


def normalization(config: ModelConfig) -> nn.Module:
  """Returns the normalization that config.norm_kind names."""
  kind = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}[config.norm_kind]
  return kind(dtype=config.dtype)


def update_cache(
  cache: tuple[jax.Array, jax.Array],
  key_value: tuple[jax.Array, jax.Array],
  start: jax.Array | int,
) -> tuple[jax.Array, jax.Array]:
  """Returns a layer's cache with the keys and values of new positions.

  Args:
    cache: Keys and values [B, H, L, K] in L slots, one for every position or
      for those of a window (decode.stream).
    key_value: Keys and values [B, H, T, K] of T consecutive slots.
    start: The first of these slots.
  """
  return jax.tree.map(
    lambda old, new: jax.lax.dynamic_update_slice_in_dim(
      old, new.astype(old.dtype), start, axis=2
    ),
    cache,
    key_value,
  )
