"""The layers of a transformer, and its hyper-parameters.

Shapes: B batch, T rows (queries), S keys, L slots of a cache, D features
(emb_dim), H heads, K head size.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax import sections
from lengthgen_jax.attention.kernel import DenseBias, SparseBias, attend
from lengthgen_jax.attention.normalizers import AttentionConfig
from lengthgen_jax.attention.positions.encoding import PositionConfig
from lengthgen_jax.attention.temperature import TEMPERATURES, tau
from lengthgen_jax.coordinates import Array
from lengthgen_jax.rng import Noise

Rotation = Callable[[jax.Array], jax.Array]  # of [B, H, T or S, K]
_unrotated: Rotation = lambda x: x


class ModelConfig(sections.Shape, kw_only=True):
  """The hyper-parameters of a transformer."""

  vocab_size: int
  num_segments: int = 1  # rows of the segment embedding; 1: there is none
  positions: PositionConfig = PositionConfig()
  temperature: sections.Temperature = sections.Temperature()
  attention: AttentionConfig = AttentionConfig()

  @property
  def head_dim(self) -> int:
    return self.emb_dim // self.num_heads

  @property
  def dense(self) -> dict[str, Any]:
    """The arguments that all dense layers share."""
    return {
      "use_bias": self.dense_bias,
      "dtype": self.dtype,
      "precision": self.precision,
    }


class Recorded(nn.Module):
  """A module whose activations can be read, and replaced, by name."""

  def record(self, name: str, x: jax.Array) -> jax.Array:
    """Returns x, which `apply(..., mutable=["intermediates"])` also returns
    under this name; who intercepts this method (`nn.intercept_methods`)
    replaces x."""
    last = lambda old, new: new
    self.sow("intermediates", name, x, init_fn=lambda: None, reduce_fn=last)
    return x


class Attention(Recorded):
  """Multi-head attention with an additive bias.

  If the collection "cache" has a "key_value" [B, H, L, K] for this module, new
  keys and values are written into its slots from `start` on, and rows attend to
  all slots.
  """

  config: ModelConfig

  def setup(self) -> None:
    config = self.config
    dense = partial(nn.DenseGeneral, **config.dense)
    heads = (config.num_heads, config.head_dim)
    self.query, self.key, self.value = dense(heads), dense(heads), dense(heads)
    self.out = dense(config.emb_dim, axis=(1, 3))
    kind = TEMPERATURES[config.temperature.kind]
    shape = (config.num_heads,) if kind.per_head else ()
    self.tau_scale, self.tau_offset = config.temperature.initial, None
    self.temperature_projection = None
    if kind.counts and kind.learned:
      init = nn.initializers.constant(self.tau_scale)
      self.tau_scale = self.param("temperature", init, shape)
    if kind.offset:
      init = nn.initializers.ones
      self.tau_offset = self.param("temperature_offset", init, shape)
    if kind.projections:
      self.temperature_projection = dense(
        (kind.projections, config.num_heads),
        dtype=jnp.promote_types(jnp.float32, config.dtype),
      )

  def key_value(
    self, inputs_BxSxD: jax.Array, rotate: Rotation
  ) -> tuple[jax.Array, jax.Array]:
    """Returns keys and values, both [B, H, S, K]."""
    key, value = self.key(inputs_BxSxD), self.value(inputs_BxSxD)
    return rotate(heads_first(key)), heads_first(value)

  def __call__(
    self,
    inputs_q: jax.Array,  # [B, T, D]
    inputs_kv: jax.Array | None,  # [B, S, D]; None: the cache has all keys
    bias: DenseBias | SparseBias,  # of one layer, masks included
    *,
    n: Array | None = None,  # [B or 1, T or 1], the count of the temperature
    rotate_q: Rotation = _unrotated,
    rotate_kv: Rotation = _unrotated,
    start: jax.Array | int = 0,
  ) -> jax.Array:  # [B, T, D]
    query = rotate_q(heads_first(self.query(inputs_q)))
    key_value: Any = self.get_variable("cache", "key_value")
    if inputs_kv is not None:
      new = self.key_value(inputs_kv, rotate_kv)
      if key_value is not None:
        write = lambda slots, x: jax.lax.dynamic_update_slice_in_dim(
          slots, x.astype(slots.dtype), start, axis=2
        )
        new = jax.tree.map(write, key_value, new)
        self.put_variable("cache", "key_value", new)
      key_value = new
    key, value = key_value
    b = self.tau_offset  # `b` of Temperature.value
    if self.temperature_projection is not None:
      projection = self.temperature_projection(inputs_q)
      b = jnp.moveaxis(projection, -2, 0)  # [projections, B, T, H]
    config = self.config
    temperature = tau(config.temperature, n, self.tau_scale, b)
    context, acts = attend(
      query, key, value, bias, temperature, config.precision, config.attention
    )
    for name, x in acts.items():  # weights and scores
      self.record(name, x)
    return self.out(context)


def heads_first(x_BxLxHxK: jax.Array) -> jax.Array:
  """Transposes to [B, H, L, K], in which each head is contiguous in memory:
  decoding on a CPU is four to nine times as fast."""
  return jnp.swapaxes(x_BxLxHxK, 1, 2)


class Mlp(nn.Module):
  """Two dense layers with an activation between them (Vaswani et al. 2017,
  section 3.3)."""

  config: ModelConfig

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:  # [B, T, D]
    config = self.config
    activation = {"relu": nn.relu, "gelu": nn.gelu}[config.activation]
    dense = partial(nn.Dense, **config.dense)
    hidden = activation(dense(config.mlp_dim, name="wi")(x))
    return dense(config.emb_dim, name="wo")(hidden)


class Block(Recorded):
  """Self-attention, cross-attention if `cross`, and an MLP, each added to the
  residual stream."""

  config: ModelConfig
  cross: bool = False

  def setup(self) -> None:
    config = self.config
    self.self_attention, self.mlp = Attention(config), Mlp(config)
    sublayers = ["self_attention", "mlp"]
    if self.cross:
      self.cross_attention = Attention(config)
      sublayers.append("cross_attention")
    # Flax names them like pre_mlp_layer_norm.
    norms = lambda: {
      f"{name}_layer_norm": normalization(config) for name in sublayers
    }
    if config.norm == "pre":
      self.pre = norms()
    elif config.norm == "post":
      self.post = norms()
    elif config.norm == "block_end":
      self.block_end_layer_norm = normalization(config)

  def sublayer_inputs(self, sublayer: str, x: jax.Array) -> jax.Array:
    """Returns the residual stream x, normalized if `norm` is "pre"."""
    if self.config.norm != "pre":
      return x
    return self.pre[f"{sublayer}_layer_norm"](x)

  def add_to_residual(
    self, sublayer: str, x: jax.Array, update: jax.Array, noise: Noise | None
  ) -> jax.Array:
    """Returns the residual stream x plus a sublayer's output, with dropout on
    it and, if `norm` is "post", the sum normalized."""
    x = x + dropout(self, sublayer, update, noise)
    if self.config.norm != "post":
      return x
    return self.post[f"{sublayer}_layer_norm"](x)

  def __call__(
    self,
    x: jax.Array,  # [B, T, D]
    encoded: jax.Array | None,  # [B, S, D]; None: a cache has its keys
    biases: Mapping[str, DenseBias | SparseBias],  # of this layer, by site
    counts: Mapping[str, Array | None],  # n of the temperature, by site
    rotate: Rotation,  # of queries, and of keys of self-attention
    rotate_encoded: Rotation = _unrotated,  # of keys of cross-attention
    noise: Noise | None = None,
    start: jax.Array | int = 0,  # the cache's slot of the first row
  ) -> jax.Array:  # [B, T, D]
    inputs = self.sublayer_inputs("self_attention", x)
    update = self.self_attention(
      inputs,
      inputs,
      biases["self"],
      n=counts.get("self"),
      rotate_q=rotate,
      rotate_kv=rotate,
      start=start,
    )
    x = self.add_to_residual("self_attention", x, update, noise)
    if self.cross:
      update = self.cross_attention(
        self.sublayer_inputs("cross_attention", x),
        encoded,
        biases["cross"],
        n=counts.get("cross"),
        rotate_q=rotate,
        rotate_kv=rotate_encoded,
      )
      x = self.add_to_residual("cross_attention", x, update, noise)
    x = self.record("before_mlp", x)
    update = self.mlp(self.sublayer_inputs("mlp", x))
    x = self.add_to_residual("mlp", x, update, noise)
    if self.config.norm == "block_end":
      x = self.block_end_layer_norm(x)
    return self.record("after_mlp", x)


def dropout(
  module: nn.Module, name: str, x_BxLxD: jax.Array, noise: Noise | None
) -> jax.Array:
  """Drops a fraction module.config.dropout_rate of x; nothing without noise.

  The module's path and `name`, which differs from call to call, are folded into
  the noise, so that no two masks are the same.
  """
  rate = module.config.dropout_rate
  if noise is None or not rate:
    return x_BxLxD
  layer_noise = noise.fold_in("/".join(("dropout", *module.path, name)))
  mask = layer_noise.dropout_mask(x_BxLxD.shape[1:], rate)
  return jnp.where(mask, x_BxLxD * (1.0 / (1.0 - rate)), 0.0)


def normalization(config: ModelConfig) -> nn.Module:
  kind = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}[config.norm_kind]
  return kind(dtype=config.dtype)
