"""This module decodes greedily with a cache of keys and values, for models of
both families; trained.py compiles it."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lengthgen_jax.coordinates import PAD
from lengthgen_jax.experiment import Experiment, SiteInputs, model_inputs
from lengthgen_jax.models.layers import ModelConfig
from lengthgen_jax.models.transformer import empty_cache
from lengthgen_jax.tasks.packing import Batch


def greedy(
  experiment: Experiment,
  params: dict,
  scaffold: dict,
  batch: Batch,
  num_outputs: jax.Array | int,
  stop: int | None,
) -> jax.Array:
  """Decodes greedily, each output from the outputs before it.

  Inputs up to the first scored row are read in one pass. Of the inputs after
  them the model is given the coordinates, but not the tokens.

  Args:
    experiment: static; the tasks and the model.
    params: of the model.
    scaffold: of one seed, by site.
    batch: of the main task; its outputs are not read, and the first one is at
      the same row in all examples.
    num_outputs: traced, how many tokens are decoded; at most the number of rows
      from the first scored one on.
    stop: static, the id of the token after which a sequence stops (and
      decoding, when all have); None decodes all outputs.

  Returns:
    [B, T] int32: outputs from column 0 on, PAD after their end.
  """
  model, task = experiment.model, experiment.task
  first = batch.first_scored[0]
  count, size = batch.inputs.shape
  _, source = model_inputs(batch)
  memory: Any = {}
  if source is not None:
    memory = model.apply(
      {"params": params},
      source,
      *experiment.site_inputs(scaffold, batch),
      method=model.memory,
    )

  def decode_part(part: Batch, cache: dict) -> tuple[jax.Array, dict]:
    site_inputs = experiment.site_inputs(scaffold, part, decoding=True)
    return decode_rows(experiment, params, part, site_inputs, cache)

  # Keys of the rows after the prompt are written again before any row sees
  # them, and until then no line leads from them: a weight of 0 hides a number,
  # but no NaN. An encoder-decoder's prompt is its start token.
  is_prompt = jnp.arange(size) <= first
  segment = jnp.where(is_prompt, batch.rows.segment, PAD)
  prompt = batch._replace(
    inputs=jnp.where(is_prompt, batch.inputs, task.pad),
    rows=batch.rows._replace(segment=segment),
  )
  prompt = prompt if batch.source is None else select_rows(prompt, 0, 1)
  cache = empty_cache(model.config, count, size, memory)
  logits, cache = decode_part(prompt, cache)
  first_token = jnp.take(logits, first, axis=1).argmax(-1).astype(jnp.int32)
  decoded = jnp.full((count, size), task.pad, jnp.int32)

  unfinished = partial(_unfinished, num_outputs)

  def decode_column(carry: tuple) -> tuple:
    """Writes the token that was predicted for a column, or PAD where the
    sequence has ended, and predicts the next one."""
    column, token, cache, decoded, done = carry
    token = jnp.where(done, task.pad, token)
    decoded = decoded.at[:, column].set(token)
    done = done if stop is None else done | (token == stop)
    part = select_rows(batch, first + column + 1, 1)
    logits, cache = decode_part(part._replace(inputs=token[:, None]), cache)
    next_token = logits[:, 0].argmax(-1).astype(jnp.int32)
    return column + 1, next_token, cache, decoded, done

  done = jnp.zeros((count,), bool)
  carry = (jnp.int32(0), first_token, cache, decoded, done)
  _, _, _, decoded, _ = jax.lax.while_loop(unfinished, decode_column, carry)
  return decoded


def decode_rows(
  experiment: Experiment,
  params: dict,
  part: Batch,
  site_inputs: SiteInputs,
  cache: dict,
) -> tuple[jax.Array, dict]:
  """Returns the main task's logits [B, T, V] of some rows of a batch, and the
  cache with their keys and values added; see `Transformer.decode`."""
  inputs, source = model_inputs(part)
  outputs: Any = experiment.model.apply(
    {"params": params, "cache": cache},
    inputs,
    site_inputs.biases,
    experiment.task.name,
    source,
    counts=site_inputs.counts,
    method=experiment.model.decode,
    mutable=["cache"],
  )
  logits, variables = outputs
  return logits, variables["cache"]


def select_rows(batch: Batch, start: jax.Array | int, size: int) -> Batch:
  """Returns a batch with only `size` rows of another from `start` on. Fields
  other than inputs, coordinates and places are whole: these rows see all keys,
  and decoding reads neither `target` nor `weight`."""
  cut = lambda x: jax.lax.dynamic_slice_in_dim(x, start, size, 1)
  return batch._replace(
    inputs=cut(batch.inputs),
    rows=batch.rows.slice(start, size),
    places=batch.places.slice(start, size),
  )


BLOCK = 256  # rows whose biases are computed together


def stream(
  experiment: Experiment,
  params: dict,
  scaffold: dict,
  batch: Batch,
  num_outputs: jax.Array | int,
  stop: int | None,
  cache_window: tuple[int, int],
) -> jax.Array:
  """Decodes like `greedy`, in time linear in the outputs and with a short
  cache, for models of which `trained.Model.cache_window` is not None.

  A source key is a function of its token, its segment and its phase (the index
  modulo the period), and is looked up in a table when a row sees it.

  Args:
    experiment, params, scaffold, batch, num_outputs, stop: as in `greedy`.
    cache_window: static, (first, recent): how many of the first and of the most
      recent keys of self-attention stay in the cache (SiteLines.cache_window).
  """
  model = experiment.model
  count, size = batch.inputs.shape
  memory = model.apply({"params": params}, method=model.token_memory)
  for_all = lambda x: jnp.broadcast_to(x, (count, *x.shape[1:]))
  memory = jax.tree.map(for_all, memory)
  memory_index = _memory_index(model.config, batch)
  first, recent = cache_window
  examples = jnp.arange(count)[:, None, None, None]
  # Where the cache holds the key of an index: behind the first keys is a ring
  # of the recent ones.
  slot = lambda index: jnp.where(
    index < first, index, first + (index - first) % recent
  )
  length = min(BLOCK, size)

  def decode_row(block_start: jax.Array, biases: dict, carry: tuple) -> tuple:
    """Decodes the output of one row; `biases` are those of all rows of the
    block from `block_start` on."""
    row, token, cache, decoded, done = carry
    of_row = lambda x: jax.lax.dynamic_slice_in_dim(x, row - block_start, 1, 3)
    part = select_rows(batch, row, 1)
    # The index is the slot of the cache in which the row's key is stored.
    # Nothing else reads it: the row's biases are there already, and positions
    # follow from the places.
    part = part._replace(
      inputs=token[:, None], rows=part.rows._replace(index=slot(row)[None])
    )
    site_inputs = SiteInputs(jax.tree.map(of_row, biases), {})
    logits, cache = decode_rows(experiment, params, part, site_inputs, cache)
    next_token = logits[:, 0].argmax(-1).astype(jnp.int32)
    next_token = jnp.where(done, experiment.task.pad, next_token)
    decoded = decoded.at[:, row].set(next_token)
    done = done if stop is None else done | (next_token == stop)
    return row + 1, next_token, cache, decoded, done

  def decode_block(carry: tuple) -> tuple:
    """Decodes up to BLOCK rows, fewer if all outputs are decoded."""
    row, *_ = carry
    start = jnp.minimum(row, size - length)
    part = select_rows(batch, start, length)
    biases: Any = experiment.site_inputs(scaffold, part, sparse=True).biases
    slots = slot(biases["self"].index)
    # Examples differ in their tokens, and so in the indices in the table.
    tokens = memory_index[examples, biases["cross"].index]
    biases = {
      "self": biases["self"].replace(index=slots),
      "cross": biases["cross"].replace(index=tokens),
    }
    in_block = lambda state: (state[0] < start + length) & unfinished(state)
    decode_next = partial(decode_row, start, biases)
    return jax.lax.while_loop(in_block, decode_next, carry)

  unfinished = partial(_unfinished, num_outputs)
  decoded = jnp.full((count, size), experiment.task.pad, jnp.int32)
  cache = empty_cache(model.config, count, first + recent, memory)
  done = jnp.zeros((count,), bool)
  carry = (jnp.int32(0), batch.inputs[:, 0], cache, decoded, done)
  *_, decoded, _ = jax.lax.while_loop(unfinished, decode_block, carry)
  return decoded


def _unfinished(num_outputs: jax.Array | int, carry: tuple) -> jax.Array:
  """Returns whether a loop over outputs goes on."""
  output, *_, done = carry
  return (output < num_outputs) & ~jnp.all(done)


def _memory_index(config: ModelConfig, batch: Batch) -> jax.Array:
  """Returns the index of every source token's key, [B, S], in
  `Transformer.token_memory`."""
  keys, places = batch.source_keys, batch.source_places
  assert batch.source is not None and keys is not None and places is not None
  period = config.positions.cyclic_period or 1
  right = config.positions.source_anchor == "right"
  index = keys.index_right() if right else keys.index[None]
  # Segments are ignored where the model embeds none.
  segment = jnp.asarray(places.segment) * (config.num_segments > 1)
  tokens = jnp.asarray(batch.source)
  return tokens + config.vocab_size * (index % period + period * segment)
