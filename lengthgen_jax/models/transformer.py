"""This module has the transformer of both papers: decoder-only (task hinting),
or with an encoder (ABS and ABC)."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.attention.kernel import DenseBias, SparseBias
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.coordinates import Array, Coordinates
from lengthgen_jax.models import layers
from lengthgen_jax.models.layers import ModelConfig
from lengthgen_jax.rng import Noise
from lengthgen_jax.tasks.packing import Batch


class SiteInputs(NamedTuple):
  """SiteInputs are what attention needs besides a batch, at the sites "self",
  "cross" and "encoder".

  Attributes:
    biases: By site, the biases of all layers, masks included; the model adds
      the bias of its position encoding to them.
    counts: By site, the count n that the temperature depends on
      (`temperature.site_counts`); None without a temperature.
  """

  biases: dict[str, DenseBias | SparseBias]
  counts: Mapping[str, Array | None]


class Memory(NamedTuple):
  """A Memory is the encoder's output, as keys and values of cross-attention.

  Attributes:
    key_values: Keys and values by layer; each is None in a decoder-only model.
    keys: The coordinates of the keys; None in a decoder-only model.
  """

  key_values: list
  keys: Coordinates | None = None


class Transformer(nn.Module):
  """A transformer of either family, with an output head for each task.

  A decoder-only model reads prompt and output as one sequence. In an
  encoder-decoder the prompt is the source, which the decoder sees by
  cross-attention: encoded, or as it is embedded if there are no encoder layers.
  All parameters but the heads' are shared by the tasks. Most names are those of
  Flaxformer's T5, but a block is `decoder_0` and no `decoder/layers_0`, and its
  attention is `self_attention` or `cross_attention`.

  Attributes:
    kind: "decoder_only" or "encoder_decoder".
    config: The hyper-parameters.
    heads: The names of the tasks, one for each output head.
  """

  kind: str
  config: ModelConfig
  heads: tuple[str, ...]

  @property
  def sites(self) -> tuple[str, ...]:
    """Returns the names of the family's attention sites: "encoder" too where
    there are no encoder layers."""
    if self.kind == "decoder_only":
      return ("self",)
    return ("self", "cross", "encoder")

  def setup(self) -> None:
    """Creates the embeddings, the position encodings, the blocks, the final
    normalizations and the output heads."""
    config = self.config
    # Unit variance: no smaller than sinusoids that are added, whose mean
    # square is 1/2.
    self.token_embedder = nn.Embed(
      config.vocab_size,
      config.emb_dim,
      dtype=config.dtype,
      embedding_init=nn.initializers.normal(1.0),
    )
    if config.num_segments > 1:
      self.segment_embedder = nn.Embed(
        config.num_segments,
        config.emb_dim,
        dtype=config.dtype,
        embedding_init=nn.initializers.normal(0.5),
      )
    position_encoding = partial(
      POSITIONS[config.positions.kind],
      config.positions,
      config.emb_dim,
      config.num_heads,
    )
    self.positions = {site: position_encoding() for site in self.sites}
    self.encoder = [
      layers.Block(config, cross=False)
      for _ in range(config.num_encoder_layers)
    ]
    self.decoder = [
      layers.Block(config, cross="cross" in self.sites)
      for _ in range(config.num_decoder_layers)
    ]
    if config.norm == "pre":
      self.decoder_norm = layers.normalization(config)
      if self.encoder:
        self.encoder_norm = layers.normalization(config)
    output_head = partial(
      nn.Dense,
      config.vocab_size,
      dtype=jnp.promote_types(jnp.float32, config.dtype),
      use_bias=config.dense_bias,
      precision=config.precision,
    )
    self.logits_dense = {name: output_head() for name in self.heads}

  def embed(
    self, tokens: Array, places: Coordinates, site: str, noise: Noise | None
  ) -> jax.Array:
    """Returns token embeddings [B, L, D] with segments and positions, after
    dropout; `site` is "self" for inputs of the decoder, "cross" for the
    source."""
    x = self.token_embedder(tokens)
    if self.config.num_segments > 1:
      x = x + self.segment_embedder(places.segment)
    # The noise of positions is the same in the encoder and the decoder.
    position_noise = None if noise is None else noise.fold_in("positions")
    x = self.positions[site].embed(x, places, position_noise)
    return layers.dropout(self, site, x, noise)

  def every_token(self, site: str) -> jax.Array:
    """Returns the embeddings [1, segments·period·V, D] of every token at every
    phase of the cyclic index in every segment.

    If the only positions of a model are a cyclic index, or it has none, these
    are the embeddings of all its possible inputs, at `ModelConfig.input_index`.
    """
    config = self.config
    sizes = config.num_segments, config.positions.cyclic_period or 1
    segment, index, tokens = map(
      jnp.ravel, jnp.indices((*sizes, config.vocab_size))
    )
    count = len(tokens)
    # Only the index and the segment matter.
    zeros = jnp.zeros((1, count, 1), jnp.int32)
    places = Coordinates(segment[None], zeros, zeros, index, place=zeros)
    return self.embed(tokens[None], places, site, None)

  def token_memory(self) -> list[tuple[jax.Array, jax.Array]]:
    """Returns keys and values [1, H, segments·period·V, K] of `every_token`, by
    layer.

    If there are no encoder layers, and the only positions are a cyclic index or
    there are none, cross-attention has no others.
    """
    x, unrotated = self.every_token("cross"), lambda x: x
    return [block.cross_key_value(x, unrotated) for block in self.decoder]

  def bias(
    self,
    site_inputs: SiteInputs,
    site: str,
    rows: Coordinates,
    keys: Coordinates,
  ) -> DenseBias | SparseBias:
    """Returns a site's bias of all layers, plus that of its position encoding,
    which is the same in every layer; with an additive encoding the bias must be
    dense."""
    bias, encoding = site_inputs.biases[site], self.positions[site]
    if not encoding.additive:
      return bias
    position_bias = encoding.bias(rows, keys, causal=site == "self")
    return DenseBias(bias.values + position_bias[None])  # axis of layers

  def encode(
    self, batch: Batch, site_inputs: SiteInputs, noise: Noise | None = None
  ) -> tuple[Memory, dict]:
    """Encodes a batch's source; returns (Memory, activations).

    Both are empty in a decoder-only model, which has no source.
    """
    if self.kind == "decoder_only":
      return Memory([None] * self.config.num_decoder_layers), {}
    source, keys, places = batch.source, batch.source_keys, batch.source_places
    assert source is not None and keys is not None and places is not None
    if self.config.positions.source_anchor == "right":  # index from the right
      places = places._replace(index=keys.index_right())
    x = self.embed(source, places, "cross", noise)
    rotate = partial(self.positions["cross"].rotate, places=places)
    acts = {"embeddings": x, "blocks": []}
    if self.encoder:
      bias = self.bias(site_inputs, "encoder", keys, keys)
      counts = {"self": site_inputs.counts["encoder"]}
      for layer, block in enumerate(self.encoder):
        key_values = {"self": block.self_key_value(x, rotate)}
        layer_biases = {"self": bias.layer(layer)}
        x, block_acts = block(
          x, rotate, key_values, layer_biases, counts, noise
        )
        acts["blocks"].append(block_acts)
      if self.config.norm == "pre":
        x = self.encoder_norm(x)
    key_values = [block.cross_key_value(x, rotate) for block in self.decoder]
    return Memory(key_values, keys), acts

  def decode(
    self,
    batch: Batch,
    memory: Memory,
    site_inputs: SiteInputs,
    head: str,
    noise: Noise | None = None,
    *,
    cache: list | None = None,
  ) -> tuple[jax.Array, list | None, dict]:
    """Computes the logits [B, T, V] of one output head for the rows of a batch.

    Args:
      batch: T rows, which may be a slice of a whole Batch: their input tokens
        with the places of these (`inputs`, `places`), the coordinates of the
        tokens that they predict (`rows`), and the coordinates of all keys.
      memory: Keys and values of the source, as `encode` returns them; with a
        sparse bias, they may be others instead, into which its `index` points.
      site_inputs: The biases and counts of the T rows.
      head: The task whose output head is applied.
      noise: What dropout and random positions are drawn from; None outside of
        training.
      cache: For each layer, keys and values [B, H, L, K] of self-attention,
        into which those of the T rows are written from `batch.rows.index[0]`
        on. This index is the same for all examples. None if the T rows are the
        whole sequence.

    Returns:
      (logits, updated cache or None, activations): the "embeddings", those of
      the "blocks" in a list, and the "output" of the last block, after the
      final normalization if there is one.
    """
    x = self.embed(batch.inputs, batch.places, "self", noise)
    rotate = partial(self.positions["self"].rotate, places=batch.places)
    rows = batch.rows
    biases = {"self": self.bias(site_inputs, "self", rows, batch.keys)}
    if memory.keys is not None:
      biases["cross"] = self.bias(site_inputs, "cross", rows, memory.keys)
    acts = {"embeddings": x, "blocks": []}
    new_cache = []
    for layer, block in enumerate(self.decoder):
      self_key_value = block.self_key_value(x, rotate)
      if cache is not None:
        self_key_value = layers.update_cache(
          cache[layer], self_key_value, rows.index[0]
        )
        new_cache.append(self_key_value)
      key_values = {"self": self_key_value, "cross": memory.key_values[layer]}
      layer_biases = {site: bias.layer(layer) for site, bias in biases.items()}
      x, block_acts = block(
        x, rotate, key_values, layer_biases, site_inputs.counts, noise
      )
      acts["blocks"].append(block_acts)
    if self.config.norm == "pre":
      x = self.decoder_norm(x)
    acts["output"] = x
    if self.is_initializing():  # every head has parameters from the start
      for output_head in self.logits_dense.values():
        output_head(x)
    logits = self.logits_dense[head](x)
    return logits, new_cache if cache is not None else None, acts

  def __call__(
    self,
    batch: Batch,
    site_inputs: SiteInputs,
    head: str,
    noise: Noise | None = None,
  ) -> tuple[jax.Array, dict]:
    """Returns teacher-forced logits [B, T, V] of one head, and activations.

    T counts the decoder inputs of the batch, which hold the right outputs;
    `noise` and `head` are as in `decode`. The activations are keyed by
    "encoder" and "decoder"; those of the encoder are empty in a decoder-only
    model.
    """
    memory, encoder_acts = self.encode(batch, site_inputs, noise)
    logits, _, acts = self.decode(batch, memory, site_inputs, head, noise)
    return logits, {"encoder": encoder_acts, "decoder": acts}


def empty_cache(config: ModelConfig, batch: int, rows: int) -> list:
  """Returns an empty cache: zeros as keys and values [batch, H, rows, K], by
  layer."""
  shape = (batch, config.num_heads, rows, config.head_dim)
  zeros = jnp.zeros(shape, config.dtype)
  return [(zeros, zeros)] * config.num_decoder_layers
