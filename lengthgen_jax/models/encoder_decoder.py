"""The encoder-decoder transformer of the ABS/ABC paper."""

from functools import partial

import jax

from lengthgen_jax.models import layers
from lengthgen_jax.models.decoder_only import DecoderOnly, Memory, Sites
from lengthgen_jax.rng import Noise
from lengthgen_jax.tasks.packing import Batch


class EncoderDecoder(DecoderOnly):
  """The same decoder with cross-attention to an encoder.

  Without encoder layers it attends to the embedded source itself.
  """

  sites = ("self", "cross", "encoder")

  def setup(self) -> None:
    """Creates the decoder, and the encoder's blocks."""
    super().setup()
    config = self.config
    self.encoder = [
      layers.Block(config, cross=False)
      for _ in range(config.num_encoder_layers)
    ]
    if self.encoder and config.norm == "pre":
      self.encoder_norm = layers.normalization(config)

  def encode(
    self, batch: Batch, sites: Sites, noise: Noise | None = None
  ) -> tuple[Memory, dict]:
    """Encodes a batch's source; returns (Memory, activations)."""
    source, keys, places = batch.source, batch.source_keys, batch.source_places
    assert source is not None and keys is not None and places is not None
    if self.config.positions.source_anchor == "right":
      places = places._replace(index=keys.index_right())
    x = self.embed(source, places, "cross", noise)
    rotate = partial(self.positions["cross"].rotate, at=places)
    acts = {"embeddings": x, "blocks": []}
    if self.encoder:
      bias = self.bias(sites, "encoder", keys, keys)
      size = {"self": sites.sizes["encoder"]}
      for n, block in enumerate(self.encoder):
        key_values = {"self": block.self_key_value(x, rotate)}
        layer_biases = {"self": bias.layer(n)}
        x, block_acts = block(x, rotate, key_values, layer_biases, size, noise)
        acts["blocks"].append(block_acts)
      if self.config.norm == "pre":
        x = self.encoder_norm(x)
    key_values = [block.cross_key_value(x, rotate) for block in self.decoder]
    return Memory(key_values, keys), acts

  def token_memory(self) -> list[tuple[jax.Array, jax.Array]]:
    """Returns keys and values [1, H, period·V, K] of `every_token`, by layer.

    An identity encoder leaves no others.
    """
    x, unrotated = self.every_token("cross"), lambda x: x
    return [block.cross_key_value(x, unrotated) for block in self.decoder]
