"""Cached greedy decoding, the same for both families."""

from functools import partial

import jax
import jax.numpy as jnp

from lengthgen_jax.models.config import ModelConfig
from lengthgen_jax.models.decoder_only import Memory, Sites, empty_cache


@partial(jax.jit, static_argnums=(0, 5))
def greedy(experiment, params, scaffold, batch, outputs, stop):
  """Free-running greedy decoding with a key-value cache.

  Inputs up to the first scored row are read in one pass; what follows them is
  only told what stands where, never what it is.

  Args:
    experiment: what the model belongs to.
    params: its parameters.
    scaffold: of one seed, by site.
    batch: a Batch of a main task, of whose output nothing is given; with the
      first output at the same row in all examples.
    outputs: traced number of tokens to say, at most the rows there are.
    stop: id of the token after which a sequence stops (and decoding, when all
      have); None decodes all outputs.

  Returns:
    [B, T] int32: outputs from column 0 on, PAD behind their end.
  """
  model, variables = experiment.model, {"params": params}
  task, first = experiment.task, batch.first[0]
  count, size = batch.inputs.shape
  sites = experiment.sites(scaffold, batch)
  memory, _ = model.apply(variables, batch, sites, method=model.encode)

  def run(part, cache):
    sites = experiment.sites(scaffold, part, decoding=True)
    how = {"cache": cache, "method": model.decode}
    return model.apply(variables, part, memory, sites, task.name, **how)[:2]

  # Keys of the rows behind the prompt are written again before any row sees
  # them; an encoder-decoder's prompt is its start token.
  given = jnp.where(jnp.arange(size) <= first, batch.inputs, task.pad)
  prompt = batch._replace(inputs=given)
  prompt = prompt if batch.source is None else rows(prompt, 0, 1)
  logits, cache = run(prompt, empty_cache(model.config, count, size))
  told = jnp.take(logits, first, axis=1).argmax(-1).astype(jnp.int32)
  out = jnp.full((count, size), task.pad, jnp.int32)

  unfinished = lambda carry: (carry[0] < outputs) & ~jnp.all(carry[-1])

  def one_row(carry):
    place, token, cache, out, done = carry
    token = jnp.where(done, task.pad, token)
    out = jax.lax.dynamic_update_slice_in_dim(out, token[:, None], place, 1)
    done = done if stop is None else done | (token == stop)
    part = rows(batch, first + place + 1, 1)._replace(inputs=token[:, None])
    logits, cache = run(part, cache)
    return (
      place + 1,
      logits[:, 0].argmax(-1).astype(jnp.int32),
      cache,
      out,
      done,
    )

  done = jnp.zeros((count,), bool)
  carry = (jnp.int32(0), told, cache, out, done)
  return jax.lax.while_loop(unfinished, one_row, carry)[3]


def rows(batch, start, size: int):
  """Rows of a batch, with the keys of all."""
  cut = lambda x: jax.lax.dynamic_slice_in_dim(x, start, size, 1)
  return batch._replace(
    inputs=cut(batch.inputs),
    rows=batch.rows.rows(start, size),
    places=batch.places.rows(start, size),
  )


BLOCK = 256  # rows whose keys are looked up together


@partial(jax.jit, static_argnums=(0, 5, 6))
def stream(experiment, params, scaffold, batch, outputs, stop, ring):
  """`greedy` along lines: time linear in the outputs, and a few rows kept.

  For an encoder-decoder with identity encoder whose attention follows lines
  alone and whose inputs are told no more than an index mod T: so the source's
  keys are those of its tokens, looked up when a row sees them.

  Args:
    experiment, params, scaffold, batch, outputs, stop: as in `greedy`.
    ring: (first, recent): of self-attention's keys the first ones and the most
      recent ones are kept (attention.lines.SiteLines.ring).

  Returns:
    As `greedy`.
  """
  model, variables = experiment.model, {"params": params}
  count, size = batch.inputs.shape
  memory = model.apply(variables, method=model.token_memory)
  spread = lambda x: jnp.broadcast_to(x, (count, *x.shape[1:]))
  memory = Memory(jax.tree.map(spread, memory), batch.source_keys)
  number = _numbers(model.config, batch)
  first, recent = ring
  slot = lambda p: jnp.where(p < first, p, first + (p - first) % recent)
  length = min(BLOCK, size)

  def one_row(carry):
    row, token, cache, out, done, start, biases = carry
    near, far = (_row(own, row - start) for own in biases)
    part = rows(batch, row, 1)
    part = part._replace(
      inputs=token[:, None], rows=part.rows._replace(index=slot(row)[None])
    )
    sites = Sites({"self": near, "cross": far}, dict.fromkeys(model.sites))
    how = {"cache": cache, "method": model.decode}
    args = part, memory, sites, experiment.task.name
    logits, cache, _ = model.apply(variables, *args, **how)
    told = logits[:, 0].argmax(-1).astype(jnp.int32)
    told = jnp.where(done, experiment.task.pad, told)
    out = jax.lax.dynamic_update_slice_in_dim(out, told[:, None], row, 1)
    done = done if stop is None else done | (told == stop)
    return row + 1, told, cache, out, done, start, biases

  def one_block(carry):
    row = carry[0]
    start = jnp.minimum(row, size - length)
    part = rows(batch, start, length)
    near, far = _few_keys(experiment, scaffold, part)
    near = near.replace(index=slot(near.index))
    far = far.replace(index=jnp.moveaxis(number[:, far.index[:, 0]], 0, 1))
    inside = lambda c: (c[0] < start + length) & unfinished(c)
    carry = (*carry, start, (near, far))
    return jax.lax.while_loop(inside, one_row, carry)[:5]

  unfinished = lambda carry: (carry[0] < outputs) & ~jnp.all(carry[4])
  out = jnp.full((count, size), experiment.task.pad, jnp.int32)
  cache = empty_cache(model.config, count, first + recent)
  done = jnp.zeros((count,), bool)
  carry = (jnp.int32(0), batch.inputs[:, 0], cache, out, done)
  return jax.lax.while_loop(unfinished, one_block, carry)[3]


def _few_keys(experiment, scaffold, part):
  """Biases of self- and cross-attention on the few keys that rows see."""
  closed = tuple((site, ((),)) for site in ("self", "cross"))
  found = experiment.sites(scaffold, part, open_heads=closed).biases
  return found["self"], found["cross"]


def _row(bias, row):
  """One row of a Gathered bias."""
  cut = lambda x: jax.lax.dynamic_slice_in_dim(x, row, 1, 3)
  return bias.replace(values=cut(bias.values), index=cut(bias.index))


def _numbers(config: ModelConfig, batch):
  """[B, S]: which of token_memory's keys every source token has."""
  keys, period = batch.source_keys, config.positions.cyclic_period or 1
  right = config.positions.source_anchor == "right"
  index = keys.index_right() if right else keys.index[None]
  return batch.source + config.vocab_size * (index % period)
