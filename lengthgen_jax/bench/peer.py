"""The step of the papers' shape in PyTorch, to stand beside ours.

Written from PyTorch's documentation alone. `Stock` is built as the released ABC
program is: torch.nn's decoder layers, sequences first, masks of floats handed
in. `Fast` is what PyTorch does best: examples first, one product for query, key
and value, and scaled_dot_product_attention, with dropout where ours has it.
"""

import math

import torch
from torch import nn
from torch.nn import functional

# Bytes that a step of 512 examples takes, roughly.
MEMORY = {"stock": 10 << 30, "fast": 5 << 30}


class Stock(nn.Module):
  """torch.nn.TransformerDecoder on embedded sources; [L, B] in, [T, B, V] out.

  Its layers drop attention weights and the MLP's inside too.
  """

  def __init__(self, shape):
    super().__init__()
    self.embed = Embedding(shape)
    layer = nn.TransformerDecoderLayer(
      shape.emb_dim, shape.num_heads, shape.mlp_dim, shape.dropout_rate
    )
    self.decoder = nn.TransformerDecoder(layer, shape.num_decoder_layers)
    self.logits = nn.Linear(shape.emb_dim, shape.vocab_size)

  def forward(self, source, inputs):
    rows, keys = len(inputs), len(source)
    causal = torch.full((rows, rows), -math.inf).triu(1)
    memory = self.embed(source.T).transpose(0, 1)
    x = self.embed(inputs.T).transpose(0, 1)
    x = self.decoder(
      x, memory, tgt_mask=causal, memory_mask=torch.zeros(rows, keys)
    )
    return self.logits(x).transpose(0, 1)


class Fast(nn.Module):
  """The same decoder, [B, L] in and [B, T, V] out."""

  def __init__(self, shape):
    super().__init__()
    self.embed = Embedding(shape)
    layers = shape.num_decoder_layers
    self.blocks = nn.ModuleList(Block(shape) for _ in range(layers))
    self.logits = nn.Linear(shape.emb_dim, shape.vocab_size)

  def forward(self, source, inputs):
    memory, x = self.embed(source), self.embed(inputs)
    for block in self.blocks:
      x = block(x, memory)
    return self.logits(x)


class Embedding(nn.Module):
  """Tokens and sinusoids, then dropout; [B, L] to [B, L, D]."""

  def __init__(self, shape, longest: int = 512):
    super().__init__()
    self.tokens = nn.Embedding(shape.vocab_size, shape.emb_dim)
    self.dropout = nn.Dropout(shape.dropout_rate)
    rate = torch.arange(0, shape.emb_dim, 2) / shape.emb_dim
    angle = torch.arange(longest)[:, None] * 10000.0**-rate
    waves = torch.cat([angle.sin(), angle.cos()], -1)
    self.register_buffer("waves", waves)

  def forward(self, tokens):
    return self.dropout(self.tokens(tokens) + self.waves[: tokens.shape[1]])


class Block(nn.Module):
  """Self-attention, cross-attention, MLP, each normalized after its sum."""

  def __init__(self, shape):
    super().__init__()
    size = shape.emb_dim
    self.heads = shape.num_heads
    self.own, self.own_out = nn.Linear(size, 3 * size), nn.Linear(size, size)
    self.query = nn.Linear(size, size)
    self.far, self.far_out = nn.Linear(size, 2 * size), nn.Linear(size, size)
    self.wi = nn.Linear(size, shape.mlp_dim)
    self.wo = nn.Linear(shape.mlp_dim, size)
    self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(3))
    self.dropout = nn.Dropout(shape.dropout_rate)

  def forward(self, x, memory):
    out = self.attend(*self.own(x).chunk(3, -1), causal=True)
    x = self.norms[0](x + self.dropout(self.own_out(out)))
    out = self.attend(self.query(x), *self.far(memory).chunk(2, -1))
    x = self.norms[1](x + self.dropout(self.far_out(out)))
    out = self.wo(functional.relu(self.wi(x)))
    return self.norms[2](x + self.dropout(out))

  def attend(self, query, key, value, causal=False):
    split = lambda x: x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
    out = functional.scaled_dot_product_attention(
      *map(split, (query, key, value)), is_causal=causal
    )
    return out.transpose(1, 2).flatten(2)


def step(kind: str, shape, train, batch, threads: int):
  """A function of nothing that takes one step of Adam and returns its loss.

  Args:
    kind: "stock" or "fast".
    shape: sizes, named as ModelConfig's.
    train: learning_rate, adam_b1, adam_b2 and adam_eps.
    batch: source, inputs and target [B, L], integers.
    threads: that PyTorch may use.
  """
  torch.manual_seed(0)
  model = {"stock": Stock, "fast": Fast}[kind](shape)
  fused = {"fused": True} if kind == "fast" else {}
  optimizer = torch.optim.Adam(
    model.parameters(),
    train.learning_rate,
    (train.adam_b1, train.adam_b2),
    train.adam_eps,
    **fused,
  )
  source, inputs, target = (torch.tensor(x).long() for x in batch)
  if kind == "stock":
    source, inputs = source.T.contiguous(), inputs.T.contiguous()

  def go() -> float:
    torch.set_num_threads(threads)
    optimizer.zero_grad()
    logits = model(source, inputs)
    loss = functional.cross_entropy(logits.flatten(0, 1), target.flatten())
    loss.backward()
    optimizer.step()
    return loss.item()

  return go
