"""The encoder-decoder transformer of the ABS/ABC paper."""

import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.attention import positions
from lengthgen_jax.models import layers
from lengthgen_jax.models.config import ModelConfig


class EncoderDecoder(nn.Module):
  """Encoder (or identity) and decoder with cross-attention.

  `biases` maps "self", "cross" (and "encoder" if there are encoder layers) to
  [N or 1, H, T, S] arrays; the model adds nothing to them, so causality and
  padding come from there (attention.biases.total). Its entry "sizes" maps the
  same sites to n of the softmax temperature (attention.temperature.sizes).
  """

  config: ModelConfig

  def setup(self):
    config = self.config
    self.token_embedder = layers.embedding(config)
    if config.positions.kind == "learned":
      self.source_table = layers.position_table(config)
      self.target_table = layers.position_table(config)
    self.dropout = nn.Dropout(config.dropout_rate)
    self.encoder = [
      layers.Block(config, cross=False)
      for _ in range(config.num_encoder_layers)
    ]
    self.decoder = [
      layers.Block(config, cross=True) for _ in range(config.num_decoder_layers)
    ]
    if config.norm == "pre":
      self.decoder_norm = layers.normalization(config)
      if config.num_encoder_layers:
        self.encoder_norm = layers.normalization(config)
    self.logits_dense = layers.logits_layer(config)

  def _embed(self, tokens, index, side: str, train: bool):
    x = self.token_embedder(tokens)
    kind = self.config.positions.kind
    if kind == "sinusoidal":
      x = x + positions.sinusoid(index, self.config.emb_dim).astype(x.dtype)
    elif kind == "learned":
      table = self.source_table if side == "source" else self.target_table
      x = x + table(index)
    return self.dropout(x, deterministic=not train)

  def encode(self, source_BxS, keys, biases, train: bool = False):
    """Memory [B, S, D] and its cross-attention keys and values per layer."""
    index = positions.source_index(self.config.positions, keys)
    x = self._embed(source_BxS, index, "source", train)
    acts = {"embeddings": x, "blocks": []}
    for n, block in enumerate(self.encoder):
      kv = block.self_key_value(x, index)
      bias = {"self": layers.layer_bias(biases["encoder"], n)}
      size = {"self": biases["sizes"]["encoder"]}
      x, block_acts = block(x, index, kv, None, bias, size, train)
      acts["blocks"].append(block_acts)
    if self.encoder and self.config.norm == "pre":
      x = self.encoder_norm(x)
    cross_kv = [block.cross_key_value(x, index) for block in self.decoder]
    return cross_kv, acts

  def decode(
    self, inputs_BxT, row_T, cross_kv, biases, train=False, cache=None
  ):
    """Logits [B, T, V] of rows `row_T`.

    Args:
      inputs_BxT: decoder inputs, the target shifted right.
      row_T: [T] row numbers.
      cross_kv: from `encode`.
      biases: rows `row_T` of the bias of every site.
      train: whether dropout is on.
      cache: per layer keys and values [B, T_max, H, K] of self-attention, into
        which the given rows are written; None means that `row_T` is all.

    Returns:
      logits, the new cache (None without one), activations.
    """
    index = positions.target_index(self.config.positions, row_T)
    x = self._embed(inputs_BxT, index, "target", train)
    acts = {"embeddings": x, "blocks": []}
    new_cache = []
    for n, block in enumerate(self.decoder):
      kv = block.self_key_value(x, index)
      if cache is not None:
        kv = layers.write_rows(cache[n], kv, row_T[0])
        new_cache.append(kv)
      bias = {s: layers.layer_bias(biases[s], n) for s in ("self", "cross")}
      x, block_acts = block(
        x, index, kv, cross_kv[n], bias, biases["sizes"], train
      )
      acts["blocks"].append(block_acts)
    if self.config.norm == "pre":
      x = self.decoder_norm(x)
    acts["output"] = x
    return self.logits_dense(x), new_cache if cache is not None else None, acts

  def __call__(self, batch, biases, train: bool = False):
    """Teacher-forced logits [B, T, V] and activations of a Batch."""
    cross_kv, encoder_acts = self.encode(
      batch.source, batch.coordinates, biases, train
    )
    inputs = shift_right(batch.target, self.config.start_token)
    rows = jnp.arange(batch.target.shape[1])
    logits, _, acts = self.decode(inputs, rows, cross_kv, biases, train)
    return logits, {"encoder": encoder_acts, "decoder": acts}


def shift_right(target_BxT, start: int):
  """Decoder inputs: the start token, then the target without its last."""
  return jnp.pad(target_BxT[:, :-1], ((0, 0), (1, 0)), constant_values=start)
