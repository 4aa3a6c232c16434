"""Packs examples as batches, for encoder-decoder or for decoder-only models."""

from collections.abc import Callable
from typing import NamedTuple, get_args

import jax
import jax.numpy as jnp

from lengthgen_jax import sections
from lengthgen_jax.coordinates import PAD, Array, Coordinates, Places
from lengthgen_jax.tasks.task import Example, Task, Tokens, join

KINDS = get_args(sections.Kind)
# The fields of a batch that say where tokens stand.
COORDINATE_FIELDS = ("rows", "keys", "places", "source_keys", "source_places")


class Batch(NamedTuple):
  """A Batch is what a model gets: B examples of T decoder inputs each, and of S
  source tokens in an encoder-decoder.

  Attributes:
    inputs: [B, T] int32, decoder inputs.
    target: [B, T] int32, the token that each row must say.
    weight: [B, T] float32, 1 in rows whose output is scored, 0 elsewhere.
    rows: Coordinates of what each row must say.
    keys: Coordinates of what each input holds.
    places: Places of the decoder inputs, for position encodings.
    prompt_length: [B] int32, the number of tokens of the prompt.
    first_scored: [B] int32, the row of the first scored output.
    source: [B, S] int32, the encoder's inputs; None in a decoder-only model,
      like the next two.
    source_keys: Coordinates of the source.
    source_places: Places of the source.
  """

  inputs: Array
  target: Array
  weight: Array
  rows: Coordinates
  keys: Coordinates
  places: Places
  prompt_length: Array
  first_scored: Array
  source: Array | None = None
  source_keys: Coordinates | None = None
  source_places: Places | None = None


def pack(
  kind: str, task: Task, make_example: Callable[..., Example], *arguments: Array
) -> Batch:
  """Makes B examples and packs them as a batch.

  The tokens of an example come first, then PAD. Where the task is not ragged,
  coordinates are the same for all examples and have a batch axis of 1.

  Args:
    kind: one of KINDS, the model family.
    task: the task of the examples.
    make_example: function of one entry of each argument that returns one
      example.
    *arguments: arrays [B, ...].
  """
  pack_example = (
    _pack_decoder_only if kind == "decoder_only" else _pack_encoder_decoder
  )
  batch = jax.vmap(lambda *a: pack_example(task, make_example(*a)))(*arguments)
  fields = batch._asdict()
  for name in COORDINATE_FIELDS:
    coordinates = fields[name]
    if coordinates is not None:
      coordinates = coordinates._replace(index=coordinates.index[0])
      if not task.ragged:
        coordinates = map_examples(lambda x: x[:1], coordinates)
      fields[name] = coordinates
  return Batch(**fields)


def take(batch: Batch, select: Callable[[Array], Array]) -> Batch:
  """Returns some examples of a batch.

  Args:
    batch: the batch.
    select: function of an array [B, ...] that returns the entries of those
      examples. It is not applied to arrays that all examples share.
  """
  fields = batch._asdict()
  for name, value in fields.items():
    if name not in COORDINATE_FIELDS:
      fields[name] = None if value is None else select(value)
    elif value is not None and len(value[0]) == len(batch.inputs):
      fields[name] = map_examples(select, value)
  return Batch(**fields)


def map_examples(
  function: Callable[..., Array],
  coordinates: Coordinates | Places,
  *others: Coordinates | Places,
) -> Coordinates | Places:
  """Applies a function to each whole array [B or 1, ...] of coordinates but
  `index`, which has no batch axis; it also gets the same array of each of
  `others`. Fields that are None stay None."""
  fields = coordinates._asdict()
  for name, value in fields.items():
    if name != "index" and value is not None:
      fields[name] = function(value, *(getattr(x, name) for x in others))
  return type(coordinates)(**fields)


def _pack_encoder_decoder(task: Task, example: Example) -> Batch:
  """Packs an example for an encoder-decoder: the prompt is the source, and the
  decoder begins with the start token."""
  prompt, output = example.prompt, example.output
  start = task.segment_tokens(
    jnp.array([task.start]), 1, task.target_segment + 1, marks=1
  )
  inputs = _pad(join(start, output), task.pad)
  target, source = _pad(output, task.pad), _pad(prompt, task.pad)
  source_place = source.left if task.anchor == "left" else source.right
  return Batch(
    inputs=inputs.ids[:-1],
    target=target.ids,
    weight=_weight(jnp.arange(len(output.ids)), example),
    rows=_coordinates(target),
    keys=_coordinates(inputs, slice(None, -1)),
    places=_places(task, target, target.left, inputs.segment[:-1]),
    prompt_length=prompt.length,
    first_scored=jnp.asarray(example.prefix_length, jnp.int32),
    source=source.ids,
    source_keys=_coordinates(source),
    source_places=_places(task, source, source_place, source.segment),
  )


def _pack_decoder_only(task: Task, example: Example) -> Batch:
  """Packs prompt, delimiter and output as one sequence, whose row p must say
  token p + 1."""
  prompt, output = example.prompt, example.output
  delimiter = task.segment_tokens(
    jnp.array([task.delimiter]), 1, task.target_segment + 1, marks=1
  )
  whole = _pad(join(prompt, delimiter, output), task.pad)
  row = jnp.arange(len(whole.ids) - 1)
  # An input of the prompt has the place of the token that it holds, any other
  # that of the token its row must say.
  in_prompt = row < prompt.length
  select = lambda x: jax.vmap(jnp.where)(in_prompt, x[:-1], x[1:])
  tokens = whole._replace(
    left=select(whole.left),
    right=select(whole.right),
    digit=select(whole.digit),
  )
  anchored = tokens.left if task.anchor == "left" else tokens.right
  place = jnp.where(in_prompt[:, None], anchored, tokens.left)
  return Batch(
    inputs=whole.ids[:-1],
    target=whole.ids[1:],
    weight=_weight(row - prompt.length, example),
    rows=_coordinates(whole, slice(1, None)),
    keys=_coordinates(whole, slice(None, -1)),
    places=_places(task, tokens, place, whole.segment[:-1]),
    prompt_length=prompt.length,
    first_scored=jnp.asarray(prompt.length + example.prefix_length, jnp.int32),
  )


def _coordinates(tokens: Tokens, part: slice = slice(None)) -> Coordinates:
  """Returns the coordinates of a part of the tokens."""
  segment = tokens.segment[part]
  index = jnp.arange(len(segment), dtype=jnp.int32)
  return Coordinates(segment, tokens.left[part], tokens.right[part], index)


def _places(task: Task, tokens: Tokens, place: Array, segment: Array) -> Places:
  """Returns the Places of L inputs.

  Args:
    task: the task of the tokens.
    tokens: the tokens whose places the inputs have: those that they hold, or
      those that their rows must say.
    place: [L, A], the field `place`.
    segment: [L], the segments of the tokens that the inputs hold.
  """
  extends = tokens.left + tokens.right > 0 if place.shape[1] > 1 else None
  index = jnp.arange(len(place), dtype=jnp.int32)
  in_prompt = (segment != PAD) & (segment < task.target_segment)
  segment = jnp.where(in_prompt, segment, task.target_segment)
  length = tokens.length[None]
  return Places(place, tokens.digit, index, length, segment, extends)


def _weight(index: jax.Array, example: Example) -> jax.Array:
  """Returns 1.0 where a row's output is scored and 0.0 elsewhere, by its index
  in the output; the prefix, what precedes it and PAD are not scored."""
  scored = (index >= example.prefix_length) & (index < example.output.length)
  return scored.astype(jnp.float32)


def _pad(tokens: Tokens, pad: int) -> Tokens:
  """Returns tokens with the id and the segment of PAD behind their length."""
  inside = jnp.arange(len(tokens.ids)) < tokens.length
  return tokens._replace(
    ids=jnp.where(inside, tokens.ids, pad),
    segment=jnp.where(inside, tokens.segment, PAD),
  )
