"""The decoder-only transformer of the task hinting paper."""

import jax.numpy as jnp
from flax import linen as nn

from lengthgen_jax.attention import positions
from lengthgen_jax.models import layers
from lengthgen_jax.models.config import ModelConfig


class DecoderOnly(nn.Module):
  """One trunk, and one output head per task (hard parameter sharing).

  In the manner of Flaxformer's T5 decoder, whose layer names it bears. `biases`
  maps "self" to [N or 1, H, T, S] arrays, which hold the causal term, and
  "sizes" to n of the softmax temperature.

  Attributes:
    config: shape; its encoder layers are not used.
    heads: a name for each task.
  """

  config: ModelConfig
  heads: tuple[str, ...]

  def setup(self):
    config = self.config
    self.token_embedder = layers.embedding(config)
    if config.positions.kind == "learned":
      self.position_embedder = layers.position_table(config)
    self.dropout = nn.Dropout(config.dropout_rate)
    self.layers = [
      layers.Block(config, cross=False)
      for _ in range(config.num_decoder_layers)
    ]
    if config.norm == "pre":
      self.decoder_norm = layers.normalization(config)
    self.logits_dense = {
      name: layers.logits_layer(config) for name in self.heads
    }

  def decode(self, tokens_BxT, row_T, biases, head, train=False, cache=None):
    """Logits [B, T, V] of one head for rows `row_T`.

    Args:
      tokens_BxT: inputs of these rows.
      row_T: [T] row numbers.
      biases: rows `row_T` of the bias, and their sizes.
      head: which task answers.
      train: whether dropout is on.
      cache: per layer keys and values [B, L, H, K], into which the given rows
        are written; None means that `row_T` is all.

    Returns:
      logits, the new cache (None without one), activations.
    """
    index = positions.target_index(self.config.positions, row_T)
    x = self.token_embedder(tokens_BxT)
    kind = self.config.positions.kind
    if kind == "sinusoidal":
      x = x + positions.sinusoid(index, self.config.emb_dim).astype(x.dtype)
    elif kind == "learned":
      x = x + self.position_embedder(index)
    x = self.dropout(x, deterministic=not train)
    acts = {"embeddings": x, "blocks": []}
    new_cache = []
    for n, block in enumerate(self.layers):
      kv = block.self_key_value(x, index)
      if cache is not None:
        kv = layers.write_rows(cache[n], kv, row_T[0])
        new_cache.append(kv)
      bias = {"self": layers.layer_bias(biases["self"], n)}
      x, block_acts = block(x, index, kv, None, bias, biases["sizes"], train)
      acts["blocks"].append(block_acts)
    if self.config.norm == "pre":
      x = self.decoder_norm(x)
    acts["output"] = x
    if self.is_initializing():  # every head has parameters from the start
      for layer in self.logits_dense.values():
        layer(x)
    logits = self.logits_dense[head](x)
    return logits, new_cache if cache is not None else None, acts

  def __call__(self, tokens_BxT, biases, head: str, train: bool = False):
    """Teacher-forced logits [B, T, V] of one head, and activations."""
    rows = jnp.arange(tokens_BxT.shape[1])
    logits, _, acts = self.decode(tokens_BxT, rows, biases, head, train)
    return logits, acts
