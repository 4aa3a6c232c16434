"""This module takes training steps in PyTorch, for the benchmark to compare
with ours.

The model follows PyTorch's documentation, in two forms. `stock` is built
like the released ABC program: torch.nn's decoder layers, the sequence axis
first, and float masks as arguments. `fast` uses PyTorch's fastest operations:
the batch axis first, one product for query, key and value,
scaled_dot_product_attention and a fused Adam. `fast` has dropout only where our
model has it, while torch.nn's layers also drop attention weights and the MLP's
hidden activations.

PyTorch is an optional dependency, so it is imported inside the functions.
Shapes: B batch, S source tokens, T target tokens, L either of them, D features,
V tokens of the vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lengthgen_jax.models.layers import ModelConfig
from lengthgen_jax.training.optimizer import TrainConfig

# About how many bytes a step of 512 examples needs, by the name of the model.
MEMORY = {"stock": 10 << 30, "fast": 5 << 30}
MAX_LENGTH = 512  # the number of positions that are encoded


def stock(config: ModelConfig) -> tuple[Any, Callable]:
  """Builds the model from torch.nn's decoder layers.

  Returns:
    The torch.nn.ModuleList of all layers, and a function of source [S, B] and
    inputs [T, B] that returns logits [B, T, V].
  """
  import torch
  from torch import nn

  layer = nn.TransformerDecoderLayer(
    config.emb_dim, config.num_heads, config.mlp_dim, config.dropout_rate
  )
  decoder = nn.TransformerDecoder(layer, config.num_decoder_layers)
  shared, embed = embedding(config)
  logits = nn.Linear(config.emb_dim, config.vocab_size)

  def forward(source, inputs):
    rows, keys = len(inputs), len(source)
    causal = torch.full((rows, rows), -math.inf).triu(1)
    memory = embed(source.T).transpose(0, 1)
    x = embed(inputs.T).transpose(0, 1)
    no_mask = torch.zeros(rows, keys)
    x = decoder(x, memory, tgt_mask=causal, memory_mask=no_mask)
    return logits(x).transpose(0, 1)

  return nn.ModuleList([*shared, decoder, logits]), forward


def fast(config: ModelConfig) -> tuple[Any, Callable]:
  """Builds the model from PyTorch's fastest operations.

  Returns:
    The torch.nn.ModuleList of all layers, and a function of source [B, S] and
    inputs [B, T] that returns logits [B, T, V].
  """
  from torch import nn

  shared, embed = embedding(config)
  blocks = [block(config) for _ in range(config.num_decoder_layers)]
  logits = nn.Linear(config.emb_dim, config.vocab_size)

  def forward(source, inputs):
    memory, x = embed(source), embed(inputs)
    for _, apply in blocks:
      x = apply(x, memory)
    return logits(x)

  layers = [layer for modules, _ in blocks for layer in modules]
  return nn.ModuleList([*shared, *layers, logits]), forward


def embedding(config: ModelConfig) -> tuple[list, Callable]:
  """Builds the token embedding with sinusoidal positions and dropout.

  Returns:
    A list of the modules, and a function of tokens [B, L] that returns vectors
    [B, L, D].
  """
  import torch
  from torch import nn

  table = nn.Embedding(config.vocab_size, config.emb_dim)
  dropout = nn.Dropout(config.dropout_rate)
  rate = torch.arange(0, config.emb_dim, 2) / config.emb_dim
  angle = torch.arange(MAX_LENGTH)[:, None] * 10000.0**-rate
  waves = torch.cat([angle.sin(), angle.cos()], -1)
  embed = lambda tokens: dropout(table(tokens) + waves[: tokens.shape[1]])
  return [table, dropout], embed


def block(config: ModelConfig) -> tuple[list, Callable]:
  """Builds a post-norm decoder block: self-attention, cross-attention and MLP.

  Returns:
    A list of the modules, and a function of the block's inputs [B, T, D] and
    the source's vectors [B, S, D] that returns the block's outputs [B, T, D].
  """
  from torch import nn
  from torch.nn import functional

  emb_dim, mlp_dim = config.emb_dim, config.mlp_dim
  self_qkv = nn.Linear(emb_dim, 3 * emb_dim)
  self_out = nn.Linear(emb_dim, emb_dim)
  query, cross_kv = nn.Linear(emb_dim, emb_dim), nn.Linear(emb_dim, 2 * emb_dim)
  cross_out = nn.Linear(emb_dim, emb_dim)
  wi, wo = nn.Linear(emb_dim, mlp_dim), nn.Linear(mlp_dim, emb_dim)
  norms = [nn.LayerNorm(emb_dim) for _ in range(3)]
  dropout = nn.Dropout(config.dropout_rate)

  def attend(query, key, value, causal):
    shape = config.num_heads, -1
    heads_first = lambda x: x.unflatten(-1, shape).transpose(1, 2)
    out = functional.scaled_dot_product_attention(
      *map(heads_first, (query, key, value)), is_causal=causal
    )
    return out.transpose(1, 2).flatten(2)

  def apply(x, memory):
    out = attend(*self_qkv(x).chunk(3, -1), causal=True)
    x = norms[0](x + dropout(self_out(out)))
    out = attend(query(x), *cross_kv(memory).chunk(2, -1), causal=False)
    x = norms[1](x + dropout(cross_out(out)))
    return norms[2](x + dropout(wo(functional.relu(wi(x)))))

  layers = [self_qkv, self_out, query, cross_kv, cross_out, wi, wo]
  return [*layers, *norms, dropout], apply


MODELS = {"stock": stock, "fast": fast}


def make_step(
  kind: str,
  config: ModelConfig,
  train: TrainConfig,
  batch: Sequence[np.ndarray],
  threads: int,
) -> Callable[[], float]:
  """Returns a function that takes one training step with Adam.

  Args:
    kind: a key of MODELS.
    config: the shape of the model.
    train: the learning rate and Adam's coefficients; no other field is used.
    batch: source [B, S], inputs [B, T] and target [B, T], token ids.
    threads: the number of CPU threads that PyTorch may use.

  Returns:
    A function without arguments that takes the step and returns the loss, in
    nats per token.
  """
  import torch
  from torch.nn import functional

  torch.manual_seed(0)
  modules, forward = MODELS[kind](config)
  optimizer = torch.optim.Adam(
    modules.parameters(),
    train.learning_rate,
    (train.adam_b1, train.adam_b2),
    train.adam_eps,
    **({"fused": True} if kind == "fast" else {}),
  )
  source, inputs, target = (torch.tensor(x).long() for x in batch)
  if kind == "stock":
    source, inputs = source.T.contiguous(), inputs.T.contiguous()

  def step() -> float:
    torch.set_num_threads(threads)
    optimizer.zero_grad()
    logits = forward(source, inputs)
    loss = functional.cross_entropy(logits.flatten(0, 1), target.flatten())
    loss.backward()
    optimizer.step()
    return loss.item()

  return step
