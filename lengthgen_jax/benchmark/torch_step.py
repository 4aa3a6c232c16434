"""The step of the papers' shape in PyTorch, to stand beside ours.

Written from PyTorch's documentation alone. `stock` is built as the released ABC
program is: torch.nn's decoder layers, sequences first, masks of floats handed
in. `fast` is what PyTorch does best: examples first, one product for query, key
and value, scaled_dot_product_attention, a fused Adam, and dropout where ours
has it (torch.nn's layers drop attention weights and the MLP's inside too).

PyTorch is imported when asked for: it is an optional extra.
"""

import math

# Bytes that a step of 512 examples takes, roughly.
MEMORY = {"stock": 10 << 30, "fast": 5 << 30}
LONGEST = 512  # positions


def stock(shape):
  """(modules, function): source [S, B], inputs [T, B] to logits [B, T, V]."""
  import torch
  from torch import nn

  layer = nn.TransformerDecoderLayer(
    shape.emb_dim, shape.num_heads, shape.mlp_dim, shape.dropout_rate
  )
  decoder = nn.TransformerDecoder(layer, shape.num_decoder_layers)
  shared, embed = embedding(shape)
  logits = nn.Linear(shape.emb_dim, shape.vocab_size)

  def forward(source, inputs):
    rows, keys = len(inputs), len(source)
    causal = torch.full((rows, rows), -math.inf).triu(1)
    memory = embed(source.T).transpose(0, 1)
    x = embed(inputs.T).transpose(0, 1)
    free = torch.zeros(rows, keys)
    x = decoder(x, memory, tgt_mask=causal, memory_mask=free)
    return logits(x).transpose(0, 1)

  return nn.ModuleList([*shared, decoder, logits]), forward


def fast(shape):
  """(modules, function): source [B, S], inputs [B, T] to logits [B, T, V]."""
  from torch import nn

  shared, embed = embedding(shape)
  blocks = [block(shape) for _ in range(shape.num_decoder_layers)]
  logits = nn.Linear(shape.emb_dim, shape.vocab_size)

  def forward(source, inputs):
    memory, x = embed(source), embed(inputs)
    for _, apply in blocks:
      x = apply(x, memory)
    return logits(x)

  parts = [part for own, _ in blocks for part in own]
  return nn.ModuleList([*shared, *parts, logits]), forward


def embedding(shape):
  """(modules, function): tokens [B, L] to [B, L, D], with sinusoids and
  dropout."""
  import torch
  from torch import nn

  table = nn.Embedding(shape.vocab_size, shape.emb_dim)
  dropout = nn.Dropout(shape.dropout_rate)
  rate = torch.arange(0, shape.emb_dim, 2) / shape.emb_dim
  angle = torch.arange(LONGEST)[:, None] * 10000.0**-rate
  waves = torch.cat([angle.sin(), angle.cos()], -1)
  embed = lambda tokens: dropout(table(tokens) + waves[: tokens.shape[1]])
  return [table, dropout], embed


def block(shape):
  """(modules, function): self-attention, cross-attention, MLP, each normalized
  after its sum."""
  from torch import nn
  from torch.nn import functional

  size, inside = shape.emb_dim, shape.mlp_dim
  own, own_out = nn.Linear(size, 3 * size), nn.Linear(size, size)
  query, far = nn.Linear(size, size), nn.Linear(size, 2 * size)
  far_out = nn.Linear(size, size)
  wi, wo = nn.Linear(size, inside), nn.Linear(inside, size)
  norms = [nn.LayerNorm(size) for _ in range(3)]
  dropout = nn.Dropout(shape.dropout_rate)

  def attend(query, key, value, causal):
    split = lambda x: x.unflatten(-1, (shape.num_heads, -1)).transpose(1, 2)
    out = functional.scaled_dot_product_attention(
      *map(split, (query, key, value)), is_causal=causal
    )
    return out.transpose(1, 2).flatten(2)

  def apply(x, memory):
    out = attend(*own(x).chunk(3, -1), True)
    x = norms[0](x + dropout(own_out(out)))
    out = attend(query(x), *far(memory).chunk(2, -1), False)
    x = norms[1](x + dropout(far_out(out)))
    return norms[2](x + dropout(wo(functional.relu(wi(x)))))

  return [own, own_out, query, far, far_out, wi, wo, *norms, dropout], apply


def step(kind: str, shape, train, batch, threads: int):
  """A function of nothing that takes one step of Adam and returns its loss.

  Args:
    kind: "stock" or "fast".
    shape: sizes, named as ModelConfig's.
    train: learning_rate, adam_b1, adam_b2 and adam_eps.
    batch: source, inputs and target [B, L], integers.
    threads: that PyTorch may use.
  """
  import torch
  from torch.nn import functional

  torch.manual_seed(0)
  modules, forward = {"stock": stock, "fast": fast}[kind](shape)
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

  def go() -> float:
    torch.set_num_threads(threads)
    optimizer.zero_grad()
    told = forward(source, inputs)
    loss = functional.cross_entropy(told.flatten(0, 1), target.flatten())
    loss.backward()
    optimizer.step()
    return loss.item()

  return go
