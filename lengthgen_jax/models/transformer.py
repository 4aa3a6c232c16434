"""The transformer of both papers: decoder-only (task hinting), or with an
encoder (ABS and ABC)."""

import itertools
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.attention.kernel import DenseBias, SparseBias, entry
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.coordinates import PAD, Array, Coordinates
from lengthgen_jax.models import layers
from lengthgen_jax.models.layers import ModelConfig
from lengthgen_jax.rng import Noise

# By attention site ("self", "cross", "encoder"): biases of all layers, masks
# included, and the counts of the temperature (`temperature.site_counts`).
Biases = Mapping[str, DenseBias | SparseBias]
Counts = Mapping[str, Array | None]


class Inputs(NamedTuple):
  """The tokens that a stack of blocks reads, and where they stand."""

  tokens: Array  # [B, L]
  places: Coordinates  # what position encodings read
  keys: Coordinates  # of the tokens
  rows: Coordinates  # of the tokens that the rows must say

  @classmethod
  def of(cls, tokens: Array, at: Coordinates) -> Self:
    """Returns inputs whose rows stand where their tokens do."""
    is_token = jnp.asarray(at.segment) != PAD
    places = at._replace(place=at.left, digit=is_token, size=at.num_tokens())
    return cls(tokens, places, at, at)


class Transformer(layers.Recorded):
  """A transformer of either family, with an output head for each task.

  A decoder-only model reads prompt and output as one sequence. In an
  encoder-decoder the prompt is the source, which the decoder sees by
  cross-attention: encoded, or as it is embedded if there are no encoder layers.
  Most names of parameters are those of Flaxformer's T5, but a block is
  `decoder_0` and no `decoder/layers_0`, and its attention is `self_attention`
  or `cross_attention`. Activations have the same names, beside "inputs",
  "source" (both embedded) and "output" (of the last block, normalized).
  """

  config: ModelConfig
  kind: str = "decoder_only"  # or "encoder_decoder"
  output_heads: tuple[str, ...] = ("main",)  # the names of the output heads

  @property
  def depths(self) -> dict[str, int]:
    """The number of layers of each of the family's attention sites."""
    decoder = self.config.num_decoder_layers
    if self.kind == "decoder_only":
      return {"self": decoder}
    encoder = self.config.num_encoder_layers
    return {"self": decoder, "cross": decoder, "encoder": encoder}

  def setup(self) -> None:
    config = self.config
    embed = partial(nn.Embed, features=config.emb_dim, dtype=config.dtype)
    normal = nn.initializers.normal
    # Unit variance: no smaller than sinusoids that are added, whose mean
    # square is 1/2.
    self.token_embedder = embed(config.vocab_size, embedding_init=normal(1.0))
    if config.num_segments > 1:
      segments = config.num_segments
      self.segment_embedder = embed(segments, embedding_init=normal(0.5))
    encoding = POSITIONS[config.positions.kind]
    self.positions = {
      site: encoding(config.positions, config.emb_dim, config.num_heads)
      for site in self.depths
    }
    self.encoder = [
      layers.Block(config) for _ in range(config.num_encoder_layers)
    ]
    self.decoder = [
      layers.Block(config, cross="cross" in self.depths)
      for _ in range(config.num_decoder_layers)
    ]
    if config.norm == "pre":
      self.decoder_norm = layers.normalization(config)
      if self.encoder:
        self.encoder_norm = layers.normalization(config)
    dense = partial(nn.Dense, config.vocab_size, **config.dense)
    wide = jnp.promote_types(jnp.float32, config.dtype)
    self.logits_dense = {name: dense(dtype=wide) for name in self.output_heads}

  def __call__(
    self,
    inputs: Inputs,
    biases: Biases,
    head: str | None = None,  # the first one by default
    *,
    source: Inputs | None = None,  # of an encoder-decoder
    counts: Counts | None = None,
    noise: Noise | None = None,  # of training: dropout, random positions
  ) -> jax.Array:
    """Returns teacher-forced logits [B, T, V]."""
    encoded = None
    if source is not None:
      encoded = self.encode(source, biases, counts, noise)
    return self.decode(
      inputs, biases, head, source, encoded, counts=counts, noise=noise
    )

  def encode(
    self,
    source: Inputs,
    biases: Biases,
    counts: Counts | None = None,
    noise: Noise | None = None,
  ) -> jax.Array:  # [B, S, D]
    x = self.embed(source.tokens, self._source_places(source), "cross", noise)
    x = self.record("source", x)
    if not self.encoder:
      return x
    rotate = self._rotate_source(source)
    bias = {"self": self._bias(biases, "encoder", source.keys, source.keys)}
    count = {"self": (counts or {}).get("encoder")}
    for n, block in enumerate(self.encoder):
      x = block(x, None, entry(bias, n), count, rotate, noise=noise)
    return self.encoder_norm(x) if self.config.norm == "pre" else x

  def decode(
    self,
    inputs: Inputs,
    biases: Biases,
    head: str | None = None,
    source: Inputs | None = None,
    encoded: jax.Array | None = None,
    *,
    counts: Counts | None = None,
    noise: Noise | None = None,
  ) -> jax.Array:
    """Returns the logits [B, T, V] of T rows.

    With a "cache" (`empty_cache`) these are any consecutive rows of a sequence,
    the same for all examples, whose keys are written into the slots from
    `inputs.rows.index[0]` on; the cache then has the keys of the source, too,
    so that nothing is `encoded`.
    """
    x = self.embed(inputs.tokens, inputs.places, "self", noise)
    x = self.record("inputs", x)
    rotate = partial(self.positions["self"].rotate, places=inputs.places)
    by_site = {"self": self._bias(biases, "self", inputs.rows, inputs.keys)}
    rotate_source = rotate  # not used in a decoder-only model
    if source is not None:
      by_site["cross"] = self._bias(biases, "cross", inputs.rows, source.keys)
      rotate_source = self._rotate_source(source)
    start = inputs.rows.index[0]
    for n, block in enumerate(self.decoder):
      bias = entry(by_site, n)
      x = block(
        x, encoded, bias, counts or {}, rotate, rotate_source, noise, start
      )
    if self.config.norm == "pre":
      x = self.decoder_norm(x)
    x = self.record("output", x)
    if self.is_initializing():  # every head has parameters from the start
      for output_head in self.logits_dense.values():
        output_head(x)
    return self.logits_dense[head or self.output_heads[0]](x)

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

  def _source_places(self, source: Inputs) -> Coordinates:
    if self.config.positions.source_anchor == "left":
      return source.places
    return source.places._replace(index=source.keys.index_right())

  def _rotate_source(self, source: Inputs) -> layers.Rotation:
    places = self._source_places(source)
    return partial(self.positions["cross"].rotate, places=places)

  def _bias(
    self, biases: Biases, site: str, rows: Coordinates, keys: Coordinates
  ) -> DenseBias | SparseBias:
    """Adds the bias of the position encoding, the same in every layer."""
    bias, encoding = biases[site], self.positions[site]
    if not encoding.additive:
      return bias
    position_bias = encoding.bias(rows, keys, causal=site == "self")
    return DenseBias(bias.values + position_bias[None])  # axis of layers

  # Decoding.

  def memory(
    self, source: Inputs, biases: Biases, counts: Counts | None = None
  ) -> dict:
    """Returns the keys and values of the source, for `empty_cache`."""
    encoded = self.encode(source, biases, counts)
    return self._memory(encoded, self._rotate_source(source))

  def _memory(self, encoded: jax.Array, rotate: layers.Rotation) -> dict:
    key_value = lambda block: block.cross_attention.key_value(encoded, rotate)
    return {
      block.name: {"cross_attention": {"key_value": key_value(block)}}
      for block in self.decoder
    }

  def token_memory(self) -> dict:
    """Returns the `memory` [1, H, segments·period·V, K] of every token at every
    phase of the cyclic index in every segment, at token + V·(phase +
    period·segment).

    If there are no encoder layers, and the only positions are a cyclic index or
    there are none, cross-attention has no other keys.
    """
    config = self.config
    sizes = config.num_segments, config.positions.cyclic_period or 1
    segment, index, tokens = map(
      jnp.ravel, jnp.indices((*sizes, config.vocab_size))
    )
    zeros = jnp.zeros((1, len(tokens), 1), jnp.int32)
    # Only the index and the segment matter.
    places = Coordinates(segment[None], zeros, zeros, index, place=zeros)
    embedded = self.embed(tokens[None], places, "cross", None)
    return self._memory(embedded, lambda x: x)


def empty_cache(
  config: ModelConfig, batch: int, slots: int, memory: dict
) -> dict:
  """Returns the collection "cache" of a decoder: no keys of its own in any
  slot, and those of the source (`memory`, {} in a decoder-only model)."""
  shape = (batch, config.num_heads, slots, config.head_dim)
  zeros = jnp.zeros(shape, config.dtype)
  names = [f"decoder_{n}" for n in range(config.num_decoder_layers)]
  return {
    name: {"self_attention": {"key_value": (zeros, zeros)}}
    | memory.get(name, {})
    for name in names
  }


def blocks(acts: dict, stack: str = "decoder") -> list[dict]:
  """Returns the activations of the blocks of the decoder or the encoder."""
  names = (f"{stack}_{n}" for n in itertools.count())
  return [acts[name] for name in itertools.takewhile(acts.__contains__, names)]
