"""Examples as batches: the one room that knows both model families."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lengthgen_jax.coordinates import PAD, Array, Coordinates, Places
from lengthgen_jax.tasks.task import Example, Tokens, join

KINDS = ("encoder_decoder", "decoder_only")


class Batch(NamedTuple):
  """What a model is given; T decoder inputs, S source tokens.

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


def batch(kind: str, task, make, *arguments) -> Batch:
  """Packs the examples make(*a) for every a of arguments [B, ...].

  Examples are packed left and followed by PAD. Where the task is not ragged,
  coordinates are the same for all examples and have a batch axis of 1.
  """
  pack = {"encoder_decoder": _source_and_target, "decoder_only": _packed}[kind]

  def one(*a):
    found = pack(task, make(*a))
    return _arrays(found), _coordinates(found)

  axes = 0 if task.ragged else None
  arrays, where = jax.vmap(one, out_axes=(0, axes))(*arguments)
  if not task.ragged:
    where = jax.tree.map(lambda x: x[None], where)
  return _with_index(arrays, where)


def _arrays(found: Batch) -> Batch:
  return found._replace(
    rows=None, keys=None, places=None, source_keys=None, source_places=None
  )


def _coordinates(found: Batch):
  return (
    found.rows,
    found.keys,
    found.places,
    found.source_keys,
    found.source_places,
  )


def _with_index(arrays: Batch, where) -> Batch:
  """A batch whose coordinates have the index [L], which no example changes."""
  index = lambda x, like: x and x._replace(index=jnp.arange(like.shape[1]))
  rows, keys, places, source_keys, source_places = where
  target, source = arrays.target, arrays.source
  return arrays._replace(
    rows=index(rows, target),
    keys=index(keys, target),
    places=index(places, target),
    source_keys=index(source_keys, source),
    source_places=index(source_places, source),
  )


def _source_and_target(task, example: Example) -> Batch:
  """The prompt is the source; the decoder begins with the start token."""
  prompt, output = example.prompt, example.output
  start = task.run(jnp.array([task.start]), 1, task.target + 1, marks=1)
  size = output.ids.shape[0]
  target = _ended(output, task.pad)
  inputs = _ended(join([start, output], size + 1), task.pad)
  weight = _scored(jnp.arange(size), example.given, output.length)
  source = _ended(prompt, task.pad)
  return Batch(
    inputs=inputs.ids[:-1],
    target=target.ids,
    weight=weight,
    rows=_at(target),
    keys=_at(_cut(inputs, slice(None, -1))),
    places=Places(target.left, target.digit, None, output.length[None]),
    items=prompt.length,
    first=jnp.asarray(example.given, jnp.int32),
    source=source.ids,
    source_keys=_at(source),
    source_places=Places(source.right, source.digit, None, prompt.length[None]),
  )


def _packed(task, example: Example) -> Batch:
  """Prompt, delimiter and output in one sequence; row p says token p + 1."""
  prompt, output = example.prompt, example.output
  mark = task.run(jnp.array([task.delimiter]), 1, task.target + 1, marks=1)
  size = prompt.ids.shape[0] + 1 + output.ids.shape[0]
  whole = _ended(join([prompt, mark, output], size), task.pad)
  held, said = _cut(whole, slice(None, -1)), _cut(whole, slice(1, None))
  row = jnp.arange(size - 1)
  inside = row < prompt.length
  pick = lambda a, b: jnp.where(
    inside.reshape((-1,) + (1,) * (a.ndim - 1)), a, b
  )
  return Batch(
    inputs=held.ids,
    target=said.ids,
    weight=_scored(row - prompt.length, example.given, output.length),
    rows=_at(said),
    keys=_at(held),
    places=Places(
      pick(held.right, said.left),
      pick(held.digit, said.digit),
      None,
      whole.length[None],
    ),
    items=prompt.length,
    first=jnp.asarray(prompt.length + example.given, jnp.int32),
  )


def _scored(place, given, length):
  return ((place >= given) & (place < length)).astype(jnp.float32)


def _ended(tokens: Tokens, pad: int) -> Tokens:
  """The same tokens with PAD behind their length."""
  inside = jnp.arange(tokens.ids.shape[0]) < tokens.length
  return tokens._replace(
    ids=jnp.where(inside, tokens.ids, pad),
    segment=jnp.where(inside, tokens.segment, PAD),
  )


def _cut(tokens: Tokens, where: slice) -> Tokens:
  fields = (x if i == 1 else x[where] for i, x in enumerate(tokens))
  return Tokens(*fields)


def _at(tokens: Tokens) -> Coordinates:
  return Coordinates(tokens.segment, tokens.left, tokens.right, None)
