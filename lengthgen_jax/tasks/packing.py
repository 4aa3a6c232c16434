"""Packs examples as batches, for encoder-decoder or for decoder-only models."""

from collections.abc import Callable
from typing import NamedTuple, get_args

import jax
import jax.numpy as jnp

from lengthgen_jax import sections
from lengthgen_jax.coordinates import PAD, Array, Coordinates
from lengthgen_jax.tasks.task import Example, Task, Tokens, join, uniform_int

KINDS = get_args(sections.Kind)
# The fields of a batch that say where tokens stand.
COORDINATE_FIELDS = ("rows", "keys", "places", "source_keys", "source_places")


class Batch(NamedTuple):
  """What a model gets: B examples of T decoder inputs each, and of S source
  tokens in an encoder-decoder; the last three are None in a decoder-only
  model."""

  inputs: Array  # [B, T] int32, decoder inputs
  target: Array  # [B, T] int32, the token that each row must say
  weight: Array  # [B, T] float32, 1 in rows whose output is scored, 0 elsewhere
  rows: Coordinates  # of what each row must say
  keys: Coordinates  # of what each input holds
  places: Coordinates  # of the inputs, for position encodings
  prompt_length: Array  # [B] int32, the number of tokens of the prompt
  first_scored: Array  # [B] int32, the row of the first scored output
  source: Array | None = None  # [B, S] int32, the encoder's inputs
  source_keys: Coordinates | None = None
  source_places: Coordinates | None = None


def pack(
  kind: str, task: Task, make_example: Callable[..., Example], *arguments: Array
) -> Batch:
  """Makes B examples, each from one entry of each argument [B, ...], and packs
  them as a batch for a model family of KINDS; their PAD comes last.

  Where the task is not ragged, all share coordinates with a batch axis of 1.
  """
  batch = jax.vmap(lambda *a: _pack_example(kind, task, make_example(*a)))(
    *arguments
  )
  fields = batch._asdict()
  for name in COORDINATE_FIELDS:
    coordinates = fields[name]
    if coordinates is not None:
      index = coordinates.index[0]
      if not task.ragged:
        coordinates = jax.tree.map(lambda x: x[:1], coordinates)
      fields[name] = coordinates._replace(index=index)
  return Batch(**fields)


def restrict(
  task: Task, batch: Batch, num_kept: int, numbers: jax.Array
) -> Batch:
  """Returns a random restriction of each example of a decoder-only batch of a
  ragged task whose outputs have no prefix: at most `num_kept` of its inputs, at
  the places that they have in it.

  One output, drawn at random, is scored. Kept are its row, the delimiter, what
  the output depends on (`Task.needed`) and other inputs before the row, drawn
  at random; where there are fewer, all, and PAD follows. If the first three are
  more than `num_kept`, nothing is scored. `numbers` [B, 1 + T] are uniform in
  [0, 1). (Awasthi, Gupta and Kumar, NeurIPS 2025.)
  """
  index = jnp.arange(batch.inputs.shape[1])

  def choose(inputs, target, weight, delimiter_index, numbers):
    num_outputs = weight.sum().astype(jnp.int32)
    row = delimiter_index + uniform_int(numbers[0], num_outputs)
    needed = task.needed(inputs, delimiter_index, row, target[row])
    needed |= (index == delimiter_index) | (index == row)
    needed &= index <= row
    # Needed inputs come first, then others at random, then those behind.
    order = jnp.where(index <= row, numbers[1:] - needed, 1.0 + index)
    kept = jnp.sort(jnp.argsort(order)[:num_kept])
    return kept, (kept == row) & (needed.sum() <= num_kept), kept <= row

  kept, is_scored, inside = jax.vmap(choose)(
    batch.inputs, batch.target, batch.weight, batch.first_scored, numbers
  )
  at_kept = jax.vmap(lambda x, kept: x[kept])

  # Positions see the old places; masks need the order alone.
  def restricted(coordinates: Coordinates) -> Coordinates:
    fields = {
      name: at_kept(x, kept)
      for name, x in coordinates._asdict().items()
      if x is not None and name not in ("index", "size")
    }
    return coordinates._replace(**fields)

  def ordered(coordinates: Coordinates) -> Coordinates:
    coordinates = restricted(coordinates)
    segment = jnp.where(inside, coordinates.segment, PAD)
    return coordinates._replace(segment=segment, index=jnp.arange(num_kept))

  return batch._replace(
    inputs=jnp.where(inside, at_kept(batch.inputs, kept), task.pad),
    target=at_kept(batch.target, kept),
    weight=is_scored.astype(jnp.float32),
    rows=ordered(batch.rows),
    keys=ordered(batch.keys),
    places=restricted(batch.places)._replace(index=kept),
    prompt_length=jnp.sum(kept < batch.prompt_length[:, None], axis=1),
    first_scored=jnp.argmax(is_scored, axis=1),
  )


def map_examples(
  function: Callable[..., Array], batch: Batch, *others: Batch
) -> Batch:
  """Applies a function to each array [B, ...] of a batch, and to the same one
  of each of `others`; what all examples share stays as it is."""
  fields = batch._asdict()
  for name, value in fields.items():
    values = [value, *(getattr(other, name) for other in others)]
    if name not in COORDINATE_FIELDS:
      fields[name] = jax.tree.map(function, *values)
    elif value is not None and len(value[0]) == len(batch.inputs):
      # Of a restriction, each example's inputs have an index of their own.
      shared = {"index": value.index} if value.index.ndim == 1 else {}
      values = [x._replace(**dict.fromkeys(shared)) for x in values]
      mapped = jax.tree.map(function, *values)
      fields[name] = mapped._replace(**shared)
  return Batch(**fields)


def _pack_example(kind: str, task: Task, example: Example) -> Batch:
  """Packs an example as one sequence, whose row p must say token p + 1: in a
  decoder-only model prompt, delimiter and output; in an encoder-decoder, whose
  source is the prompt, start token and output."""
  prompt, output = example.prompt, example.output
  is_decoder_only = kind == "decoder_only"
  mark = task.segment_tokens(
    jnp.array([task.delimiter if is_decoder_only else task.start]),
    1,
    task.target_segment + 1,
    marks=1,
  )
  parts = (prompt, mark, output) if is_decoder_only else (mark, output)
  whole = _pad(join(*parts), task.pad)
  before = prompt.length if is_decoder_only else 0
  row = jnp.arange(len(whole.ids) - 1)
  # An input of the prompt has the place of the token that it holds, any other
  # that of the token its row must say.
  in_prompt = row < before
  select = lambda x: jax.vmap(jnp.where)(in_prompt, x[:-1], x[1:])
  tokens = whole._replace(
    # The start token of an encoder-decoder has no place of its own.
    length=whole.length if is_decoder_only else output.length,
    segment=whole.segment[:-1],
    left=select(whole.left),
    right=select(whole.right),
    digit=select(whole.digit),
  )
  index = row - before  # in the output; the prefix is not scored
  is_scored = (index >= example.prefix_length) & (index < output.length)
  batch = Batch(
    inputs=whole.ids[:-1],
    target=whole.ids[1:],
    weight=is_scored.astype(jnp.float32),
    rows=_coordinates(whole, slice(1, None)),
    keys=_coordinates(whole, slice(None, -1)),
    places=_places(task, tokens, in_prompt),
    prompt_length=prompt.length,
    first_scored=jnp.asarray(before + example.prefix_length, jnp.int32),
  )
  if is_decoder_only:
    return batch
  source = _pad(prompt, task.pad)
  return batch._replace(
    source=source.ids,
    source_keys=_coordinates(source),
    source_places=_places(task, source, True),
  )


def _coordinates(tokens: Tokens, part: slice = slice(None)) -> Coordinates:
  """Returns the coordinates of a part of the tokens."""
  segment = tokens.segment[part]
  index = jnp.arange(len(segment), dtype=jnp.int32)
  return Coordinates(segment, tokens.left[part], tokens.right[part], index)


def _places(task: Task, tokens: Tokens, in_prompt: bool | Array) -> Coordinates:
  """Returns the places of L inputs: those of the tokens that they hold if they
  are `in_prompt`, else of those that their rows must say, as `tokens` says;
  their segments are those of the tokens that the inputs hold."""
  held = tokens.segment
  in_prompt = jnp.broadcast_to(in_prompt, held.shape)
  anchored = tokens.left if task.anchor == "left" else tokens.right
  return _coordinates(tokens)._replace(
    segment=jnp.where(in_prompt & (held != PAD), held, task.target_segment),
    place=jnp.where(in_prompt[:, None], anchored, tokens.left),
    digit=tokens.digit,
    size=tokens.length[None],
  )


def _pad(tokens: Tokens, pad: int) -> Tokens:
  """Returns tokens with the id and the segment of PAD behind their length."""
  inside = jnp.arange(len(tokens.ids)) < tokens.length
  return tokens._replace(
    ids=jnp.where(inside, tokens.ids, pad),
    segment=jnp.where(inside, tokens.segment, PAD),
  )
