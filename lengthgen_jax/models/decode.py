"""Cached greedy decoding, one compile for all lengths up to a bound."""

from functools import partial

import jax
import jax.numpy as jnp


@partial(
  jax.jit,
  static_argnames=("model", "bias_rows", "bound", "end", "pad", "stop"),
)
def greedy(
  model,
  params,
  lines,
  source_BxS,
  keys,
  rows,
  *,
  bias_rows,
  bound,
  end,
  pad,
  stop=True,
):
  """Free-running greedy decoding with a key-value cache.

  Args:
    model: an EncoderDecoder.
    params: its parameters.
    lines: LineBias of one seed, handed to `bias_rows`.
    source_BxS: sources, PAD after their end if shorter than S.
    keys: Coordinates of the S keys; PAD has segment -1.
    rows: traced number of rows to decode, at most `bound`.
    bias_rows: function (lines, row_T, keys, target_rows) -> biases by site.
    bound: rows of the cache and of the output, static.
    end: id of the end token.
    pad: id that fills the output behind the end.
    stop: whether a sequence stops after its end token (and decoding stops
      when all have); otherwise all `rows` rows are decoded.

  Returns:
    [B, bound] int32 tokens.
  """
  variables = {"params": params}
  targets = jnp.arange(bound)
  batch = source_BxS.shape[0]
  first = bias_rows(lines, jnp.zeros((1,), jnp.int32), keys, targets)
  cross_kv, _ = model.apply(
    variables, source_BxS, keys, first, method=model.encode
  )

  def decode_row(row, token, cache):
    biases = bias_rows(lines, row[None], keys, targets)
    logits, cache, _ = model.apply(
      variables,
      token[:, None],
      row[None],
      cross_kv,
      biases,
      cache=cache,
      method=model.decode,
    )
    return logits[:, 0], cache

  start = jnp.full((batch,), model.config.start_token, jnp.int32)
  cache = empty_cache(model.config, batch, bound)
  out = jnp.full((batch, bound), pad, jnp.int32)

  def unfinished(carry):
    row, _, _, _, done = carry
    return (row < rows) & ~jnp.all(done)

  def one_row(carry):
    row, token, cache, out, done = carry
    logits, cache = decode_row(row, token, cache)
    token = jnp.where(done, pad, jnp.argmax(logits, axis=-1)).astype(jnp.int32)
    out = jax.lax.dynamic_update_slice_in_dim(out, token[:, None], row, 1)
    return row + 1, token, cache, out, done | (stop & (token == end))

  carry = (jnp.int32(0), start, cache, out, jnp.zeros((batch,), bool))
  return jax.lax.while_loop(unfinished, one_row, carry)[3]


def empty_cache(config, batch: int, bound: int) -> list:
  """Keys and values [B, bound, H, K] of every decoder layer, all zero."""
  shape = (batch, bound, config.num_heads, config.head_dim)
  empty = jnp.zeros(shape, config.dtype)
  return [(empty, empty)] * config.num_decoder_layers


@partial(jax.jit, static_argnames=("experiment", "head", "bound"))
def complete(
  experiment, params, lines, tokens_BxP, prompt, items, rows, head, bound
):
  """Greedy continuation of prompts of one length by a decoder-only model.

  Args:
    experiment: a SequenceExperiment.
    params: its parameters.
    lines: LineBias of one seed.
    tokens_BxP: prompts, PAD after their end; P is at most `bound`.
    prompt: traced length of the prompts.
    items: traced n of the softmax temperature.
    rows: traced number of tokens to decode.
    head: which task answers.
    bound: rows of the cache, at least prompt + rows - 1 (the last token is
      told, not read).

  Returns:
    [B, bound + 1] int32 tokens: prompt and continuation, PAD behind it.
  """
  batch = tokens_BxP.shape[0]
  targets = jnp.arange(bound)
  short = bound + 1 - tokens_BxP.shape[1]
  out = jnp.pad(tokens_BxP, ((0, 0), (0, short))).astype(jnp.int32)
  items_B = jnp.full((batch,), items, jnp.int32)

  def run(tokens, row_T, cache):
    bias = experiment.biases(lines, row_T, targets)
    logits, cache, _ = experiment.model.apply(
      {"params": params},
      tokens,
      row_T,
      experiment.with_sizes(bias, items_B, row_T),
      head,
      cache=cache,
      method=experiment.model.decode,
    )
    return logits, cache

  # The prompt in one pass. Keys of the rows behind it are written again before
  # any row sees them.
  cache = empty_cache(experiment.model.config, batch, bound)
  logits, cache = run(out[:, :bound], targets, cache)
  first = jnp.take(logits, prompt - 1, axis=1).argmax(-1)

  def one_row(carry):
    row, token, cache, out = carry
    out = jax.lax.dynamic_update_slice_in_dim(out, token[:, None], row, 1)
    logits, cache = run(token[:, None], row[None], cache)
    return row + 1, logits[:, 0].argmax(-1).astype(jnp.int32), cache, out

  carry = (prompt, first.astype(jnp.int32), cache, out)
  unfinished = lambda carry: carry[0] < prompt + rows
  return jax.lax.while_loop(unfinished, one_row, carry)[3]
