"""The decoder-only transformer of the task hinting paper."""

from functools import partial
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.attention.kernel import Dense
from lengthgen_jax.coordinates import Places
from lengthgen_jax.models import layers
from lengthgen_jax.models.config import ModelConfig


class Sites(NamedTuple):
  """What the attention sites ("self", "cross", "encoder") of a model are told.

  Attributes:
    biases: by site, Dense or Gathered of all layers: causality and padding are
      in them, the model adds what its position encoding says.
    sizes: by site, n of the softmax temperature (attention.temperature.sizes).
  """

  biases: dict
  sizes: dict


class Memory(NamedTuple):
  """What an encoder leaves for the decoder: keys and values by layer, and what
  cross-attention is told. Nothing in a decoder-only model."""

  key_values: list
  keys: object = None


class DecoderOnly(nn.Module):
  """One trunk, and one output head per task (hard parameter sharing).

  In the manner of Flaxformer's T5 decoder, whose layer names it bears.

  Attributes:
    config: shape; its encoder layers are not used.
    heads: a name for each task.
  """

  config: ModelConfig
  heads: tuple[str, ...]

  sites: ClassVar[tuple[str, ...]] = ("self",)

  def setup(self):
    config = self.config
    self.token_embedder = layers.embedding(config)
    self.positions = layers.position_encodings(config, self.sites)
    self.decoder = [
      layers.Block(config, cross="cross" in self.sites)
      for _ in range(config.num_decoder_layers)
    ]
    if config.norm == "pre":
      self.decoder_norm = layers.normalization(config)
    self.logits_dense = {
      name: layers.logits_layer(config) for name in self.heads
    }

  def embed(self, tokens, places, site: str, noise):
    """Token embeddings with positions, after dropout."""
    x = self.token_embedder(tokens)
    # Both sides of an encoder-decoder get the same.
    own = None if noise is None else noise.of("positions")
    x = self.positions[site].embed(x, places, own)
    return layers.dropout(self, site, x, noise)

  def every_token(self, site: str):
    """[1, T·V, D]: inputs of every token at every phase of a cyclic index, all
    that there are where positions tell no more than that."""
    size = self.config.vocab_size
    count = size * (self.config.positions.cyclic_period or 1)
    index, tokens = jnp.divmod(jnp.arange(count), size)
    zero = jnp.zeros((1, count, 1), jnp.int32)
    places = Places(zero, zero[..., 0] > 0, index, zero[:, 0])
    return self.embed(tokens[None], places, site, None)

  def bias(self, sites: Sites, site: str, rows, keys):
    """A site's bias with what the position encoding adds to it."""
    bias = sites.biases[site]
    encoding = self.positions[site]
    if not encoding.additive:
      return bias
    added = encoding.bias(rows, keys, site == "self")
    return Dense(bias.values + added[None])

  def encode(self, batch, sites: Sites, noise=None):
    """(Memory, activations) of a batch's source; nothing without one."""
    del batch, sites, noise
    return Memory([None] * self.config.num_decoder_layers), {}

  def decode(self, batch, memory, sites, head, noise=None, *, cache=None):
    """Logits [B, T, V] of one head for the rows of a batch.

    Args:
      batch: inputs, rows and places of the T rows (a Batch, or some rows of
        one); keys of all rows that there are.
      memory: from `encode`.
      sites: biases and sizes of these rows.
      head: which task answers.
      noise: rng.Noise of these examples in training, else None.
      cache: per layer keys and values [B, H, L, K] of self-attention, into
        which the given rows are written; None means that they are all.

    Returns:
      logits, the new cache (None without one), activations.
    """
    x = self.embed(batch.inputs, batch.places, "self", noise)
    rotate = partial(self.positions["self"].rotate, at=batch.places)
    biases = {"self": self.bias(sites, "self", batch.rows, batch.keys)}
    if memory.keys is not None:
      biases["cross"] = self.bias(sites, "cross", batch.rows, memory.keys)
    acts = {"embeddings": x, "blocks": []}
    new_cache = []
    for n, block in enumerate(self.decoder):
      kv = block.self_key_value(x, rotate)
      if cache is not None:
        kv = layers.write_rows(cache[n], kv, batch.rows.index[0])
        new_cache.append(kv)
      key_values = {"self": kv, "cross": memory.key_values[n]}
      own = {site: bias.layer(n) for site, bias in biases.items()}
      x, block_acts = block(x, rotate, key_values, own, sites.sizes, noise)
      acts["blocks"].append(block_acts)
    if self.config.norm == "pre":
      x = self.decoder_norm(x)
    acts["output"] = x
    if self.is_initializing():  # every head has parameters from the start
      for layer in self.logits_dense.values():
        layer(x)
    logits = self.logits_dense[head](x)
    return logits, new_cache if cache is not None else None, acts

  def __call__(self, batch, sites: Sites, head: str, noise=None):
    """Teacher-forced logits [B, T, V] of one head, and activations: "decoder"
    and, in an encoder-decoder, "encoder"."""
    memory, encoder_acts = self.encode(batch, sites, noise)
    logits, _, acts = self.decode(batch, memory, sites, head, noise)
    return logits, {"encoder": encoder_acts, "decoder": acts}


def empty_cache(config: ModelConfig, batch: int, rows: int) -> list:
  """Keys and values [B, H, rows, K] of every decoder layer, all zero."""
  shape = (batch, config.num_heads, rows, config.head_dim)
  empty = jnp.zeros(shape, config.dtype)
  return [(empty, empty)] * config.num_decoder_layers
