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
  config = model.config
  empty = jnp.zeros(
    (batch, bound, config.num_heads, config.head_dim), config.dtype
  )
  cache = [(empty, empty)] * config.num_decoder_layers

  def unfinished(carry):
    row, _, _, _, done = carry
    return (row < rows) & ~jnp.all(done)

  def one_row(carry):
    row, token, cache, out, done = carry
    row_1 = row[None]
    biases = bias_rows(lines, row_1, keys, targets)
    logits, cache, _ = model.apply(
      variables,
      token[:, None],
      row_1,
      cross_kv,
      biases,
      cache=cache,
      method=model.decode,
    )
    token = jnp.where(done, pad, jnp.argmax(logits[:, 0], axis=-1))
    token = token.astype(jnp.int32)
    out = jax.lax.dynamic_update_slice_in_dim(out, token[:, None], row, 1)
    return row + 1, token, cache, out, done | (stop & (token == end))

  start = jnp.full((batch,), config.start_token, jnp.int32)
  out = jnp.full((batch, bound), pad, jnp.int32)
  carry = (jnp.int32(0), start, cache, out, jnp.zeros((batch,), bool))
  return jax.lax.while_loop(unfinished, one_row, carry)[3]
