"""Packs examples as batches of either model family.

This is the one file of the room that knows encoder-decoder and decoder-only
models.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lengthgen_jax.coordinates import PAD, Array, Coordinates, Places
from lengthgen_jax.tasks.task import Example, Task, Tokens, join

KINDS = ("encoder_decoder", "decoder_only")
# Fields of a batch that say where something stands.
COORDINATE_FIELDS = ("rows", "keys", "places", "source_keys", "source_places")


class Batch(NamedTuple):
  """Holds the arrays that a model gets; T decoder inputs, S source tokens.

  Attributes:
    inputs: [B, T] int32, decoder inputs.
    target: [B, T] int32, what each row must say.
    weight: [B, T] float32, 1 where the loss and exact match look.
    rows: Coordinates of what each row must say.
    keys: Coordinates of what each input holds.
    places: of the decoder inputs, for position encodings.
    items: [B] int32, n: tokens of the prompt.
    first: [B] int32, the row of the first scored output.
    source: [B, S] int32; None in a decoder-only model, as the next two.
    source_keys: Coordinates of the source.
    source_places: of the source, for position encodings.
  """

  inputs: Array
  target: Array
  weight: Array
  rows: Coordinates
  keys: Coordinates
  places: Places
  items: Array
  first: Array
  source: Array | None = None
  source_keys: Coordinates | None = None
  source_places: Places | None = None


def pack(
  kind: str, task: Task, make: Callable[..., Example], *arguments: Array
) -> Batch:
  """Packs the examples make(*a) for every a of arguments [B, ...].

  Examples are packed left and followed by PAD. Where the task is not ragged,
  coordinates are the same for all examples and have a batch axis of 1.

  Args:
    kind: one of KINDS, the model family.
    task: the task of the examples.
    make: returns an example.
    *arguments: what `make` is called with, arrays with a batch axis.
  """
  pack_example = {
    "encoder_decoder": _source_and_target,
    "decoder_only": _packed,
  }[kind]
  axis = 0 if task.ragged else None
  axes = Batch(
    *(axis if name in COORDINATE_FIELDS else 0 for name in Batch._fields)
  )
  packed = jax.vmap(lambda *a: pack_example(task, make(*a)), out_axes=axes)(
    *arguments
  )

  def with_index(
    coordinates: Coordinates | Places | None,
  ) -> Coordinates | Places | None:
    """Returns coordinates with a batch axis, and with the index [L], which is
    the same for all examples."""
    if coordinates is None:
      return None
    coordinates = (
      coordinates
      if task.ragged
      else jax.tree.map(lambda x: x[None], coordinates)
    )
    return coordinates._replace(
      index=jnp.arange(coordinates[0].shape[1], dtype=jnp.int32)
    )

  return packed._replace(
    **{field: with_index(getattr(packed, field)) for field in COORDINATE_FIELDS}
  )


def take(batch: Batch, select: Callable[[Array], Array]) -> Batch:
  """Returns some examples of a batch.

  Args:
    batch: the batch.
    select: returns the wanted entries of an array that has one for each
      example. Arrays that are the same for all examples stay as they are.
  """
  count = len(batch.inputs)

  def select_field(name, value):
    if value is None or name in COORDINATE_FIELDS and len(value[0]) != count:
      return value
    if name not in COORDINATE_FIELDS:
      return select(value)
    arrays = {key: x for key, x in value._asdict().items() if key != "index"}
    return value._replace(**jax.tree.map(select, arrays))

  return Batch(*(select_field(*field) for field in batch._asdict().items()))


def _source_and_target(task: Task, example: Example) -> Batch:
  """Packs an example for an encoder-decoder: the prompt is the source, and the
  decoder begins with the start token."""
  prompt, output = example.prompt, example.output
  start = task.segment_tokens(
    jnp.array([task.start]), 1, task.target_segment + 1, marks=1
  )
  inputs = _ended(join(start, output), task.pad)
  target, source = _ended(output, task.pad), _ended(prompt, task.pad)
  return Batch(
    inputs=inputs.ids[:-1],
    target=target.ids,
    weight=_scored(jnp.arange(len(output.ids)), example),
    rows=_at(target),
    keys=_at(inputs, slice(None, -1)),
    places=_placed(target, target.left, output.length),
    items=prompt.length,
    first=jnp.asarray(example.given, jnp.int32),
    source=source.ids,
    source_keys=_at(source),
    source_places=_placed(source, getattr(source, task.anchor), prompt.length),
  )


def _packed(task: Task, example: Example) -> Batch:
  """Packs prompt, delimiter and output in one sequence, where row p says token
  p + 1."""
  prompt, output = example.prompt, example.output
  delimiter = task.segment_tokens(
    jnp.array([task.delimiter]), 1, task.target_segment + 1, marks=1
  )
  whole = _ended(join(prompt, delimiter, output), task.pad)
  input_part, target_part = slice(None, -1), slice(1, None)
  row = jnp.arange(len(whole.ids) - 1)
  inside = row < prompt.length
  inside_column = inside[:, None]
  # A place of the prompt has the coordinates of the token it holds, any other
  # those of the token its row must say.
  tokens = jax.tree.map(
    lambda x: jnp.where(
      inside_column if x.ndim > 1 else inside, x[input_part], x[target_part]
    ),
    whole._replace(length=None),
  )
  return Batch(
    inputs=whole.ids[input_part],
    target=whole.ids[target_part],
    weight=_scored(row - prompt.length, example),
    rows=_at(whole, target_part),
    keys=_at(whole, input_part),
    places=_placed(
      tokens,
      jnp.where(inside_column, getattr(tokens, task.anchor), tokens.left),
      whole.length,
    ),
    items=prompt.length,
    first=jnp.asarray(prompt.length + example.given, jnp.int32),
  )


def _placed(tokens: Tokens, place: Array, size: Array) -> Places:
  """Returns the places of tokens, as yet without index, in a sequence of `size`
  tokens."""
  extends = tokens.left + tokens.right > 0 if place.shape[1] > 1 else None
  return Places(place, tokens.digit, None, size[None], extends)


def _scored(place: Array, example: Example) -> jax.Array:
  """Returns 1.0 at the places of the output that are neither given nor behind
  its end, 0.0 elsewhere."""
  scored = (place >= example.given) & (place < example.output.length)
  return scored.astype(jnp.float32)


def _ended(tokens: Tokens, pad: int) -> Tokens:
  """Returns the same tokens with PAD behind their length."""
  inside = jnp.arange(len(tokens.ids)) < tokens.length
  return tokens._replace(
    ids=jnp.where(inside, tokens.ids, pad),
    segment=jnp.where(inside, tokens.segment, PAD),
  )


def _at(tokens: Tokens, part: slice = slice(None)) -> Coordinates:
  """Returns the coordinates of a part of the tokens, as yet without index."""
  fields = (tokens.segment, tokens.left, tokens.right)
  return Coordinates(*(x[part] for x in fields), None)
