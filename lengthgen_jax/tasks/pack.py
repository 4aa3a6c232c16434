"""Examples as batches: the one room that knows both model families."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lengthgen_jax.coordinates import PAD, Array, Coordinates, Places
from lengthgen_jax.tasks.task import Example, Tokens, join

KINDS = ("encoder_decoder", "decoder_only")
# Fields of a batch that say where something stands.
PLACED = ("rows", "keys", "places", "source_keys", "source_places")


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
  axis = 0 if task.ragged else None
  axes = Batch(*(axis if name in PLACED else 0 for name in Batch._fields))
  found = jax.vmap(lambda *a: pack(task, make(*a)), out_axes=axes)(*arguments)

  def placed(own):
    """With its batch axis, and the index [L], which no example changes."""
    if own is None:
      return None
    own = own if task.ragged else jax.tree.map(lambda x: x[None], own)
    return own._replace(index=jnp.arange(own[0].shape[1], dtype=jnp.int32))

  return found._replace(**{n: placed(getattr(found, n)) for n in PLACED})


def take(batch: Batch, cut) -> Batch:
  """Some examples of a batch: `cut` of every array with an entry for each; what
  is the same for all, and an index, stays."""
  examples = len(batch.inputs)

  def of(name, own):
    if own is None or name in PLACED and len(own[0]) != examples:
      return own
    if name not in PLACED:
      return cut(own)
    cuts = {n: x for n, x in own._asdict().items() if n != "index"}
    return own._replace(**jax.tree.map(cut, cuts))

  return Batch(*(of(*field) for field in batch._asdict().items()))


def _source_and_target(task, example: Example) -> Batch:
  """The prompt is the source; the decoder begins with the start token."""
  prompt, output = example.prompt, example.output
  start = task.run(jnp.array([task.start]), 1, task.target + 1, marks=1)
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


def _packed(task, example: Example) -> Batch:
  """Prompt, delimiter and output in one sequence; row p says token p + 1."""
  prompt, output = example.prompt, example.output
  mark = task.run(jnp.array([task.delimiter]), 1, task.target + 1, marks=1)
  whole = _ended(join(prompt, mark, output), task.pad)
  held, said = slice(None, -1), slice(1, None)
  row = jnp.arange(len(whole.ids) - 1)
  inside = row < prompt.length
  first = inside[:, None]
  # What is given tells what it holds, a row what it must say.
  own = jax.tree.map(
    lambda x: jnp.where(first if x.ndim > 1 else inside, x[held], x[said]),
    whole._replace(length=None),
  )
  return Batch(
    inputs=whole.ids[held],
    target=whole.ids[said],
    weight=_scored(row - prompt.length, example),
    rows=_at(whole, said),
    keys=_at(whole, held),
    places=_placed(
      own,
      jnp.where(first, getattr(own, task.anchor), own.left),
      whole.length,
    ),
    items=prompt.length,
    first=jnp.asarray(prompt.length + example.given, jnp.int32),
  )


def _placed(tokens: Tokens, place, size) -> Places:
  """Places of tokens, as yet without index, in a sequence of some size."""
  extends = tokens.left + tokens.right > 0 if place.shape[1] > 1 else None
  return Places(place, tokens.digit, None, size[None], extends)


def _scored(place, example: Example):
  """1.0 at the places of the output that are neither given nor behind it."""
  scored = (place >= example.given) & (place < example.output.length)
  return scored.astype(jnp.float32)


def _ended(tokens: Tokens, pad: int) -> Tokens:
  """The same tokens with PAD behind their length."""
  inside = jnp.arange(len(tokens.ids)) < tokens.length
  return tokens._replace(
    ids=jnp.where(inside, tokens.ids, pad),
    segment=jnp.where(inside, tokens.segment, PAD),
  )


def _at(tokens: Tokens, part=slice(None)) -> Coordinates:
  """Coordinates of a part of the tokens, as yet without index."""
  fields = (tokens.segment, tokens.left, tokens.right)
  return Coordinates(*(x[part] for x in fields), None)
