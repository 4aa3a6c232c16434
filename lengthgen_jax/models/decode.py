"""Cached greedy decoding, the same for both families."""

from functools import partial

import jax
import jax.numpy as jnp

from lengthgen_jax.models.decoder_only import empty_cache


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
