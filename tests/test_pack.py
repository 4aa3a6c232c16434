"""Packed batches of every task, in both families, against plain Python."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import plain_tasks as plain
import pytest
from plain_tasks import COUNT, FORMS, MAIN

from lengthgen_jax.coordinates import PAD
from lengthgen_jax.tasks import dataset, packing
from lengthgen_jax.tasks.arithmetic import ArithmeticTask
from lengthgen_jax.tasks.items import ItemTask

every_form = pytest.mark.parametrize("form", FORMS)
every_kind = pytest.mark.parametrize("kind", packing.KINDS)

CHOSEN = [*range(7), 8, 20, 37, 77, COUNT - 1]  # of the examples


# What a batch should be. A place is (token, segment, left, right, mark).


def ends(tokens, segments, marks):
  """Places of a run of tokens: offsets from both ends of their segments."""
  found = []
  for i, (token, segment) in enumerate(zip(tokens, segments, strict=True)):
    first = segments.index(segment)
    last = len(segments) - 1 - segments[::-1].index(segment)
    found.append((token, segment, i - first, last - i, marks[i]))
  return found


def prompt_segments(task, prompt):
  """(segment of every token, whether it is a mark), from the text alone."""
  if isinstance(task, ItemTask):
    return [0] * len(prompt), [False] * len(prompt)
  text = task.vocabulary.decode(prompt)
  marks = [not symbol.isdigit() for symbol in text]
  if plain.is_aligned(text):
    return [0] * len(prompt), marks
  return [sum(marks[: i + 1]) - 1 for i in range(len(marks))], marks


def places_of(form, i):
  """(prompt's places, output's places, given, PAD, start, delimiter)."""
  task, example = FORMS[form], plain.draw_examples(form).example
  prompt, given, rest = plain.split_example(example, i)
  if isinstance(task, ItemTask | ArithmeticTask):
    segments, marks = prompt_segments(task, prompt)
  else:  # some other task's own
    own = example.prompt
    segments = own.segment[i, : len(prompt)].tolist()
    marks = (~own.digit[i, : len(prompt)]).tolist()
  target, output = len(task.segments), given + rest
  lone = lambda token: (token, target + 1, 0, 0, True)
  return (
    ends(prompt, segments, marks),
    ends(output, [target] * len(output), [False] * len(output)),
    len(given),
    (task.pad, PAD, None, None, None),
    lone(task.start),
    lone(task.delimiter),
  )


def end(form):
  """From which end places of the prompt count, by number in a place."""
  return {"left": 2, "right": 3}[FORMS[form].anchor]


def two_sequences(form, i, source_size, size):
  """What an encoder-decoder is given."""
  prompt, output, given, pad, start, _ = places_of(form, i)
  n = len(output)
  rest = lambda run, length: run + [pad] * (length - len(run))
  return {
    "held": rest([start, *output], size + 1)[:size],
    "said": rest(output, size),
    "weight": [float(given <= row < n) for row in range(size)],
    "place": [(own[2], not own[4]) for own in output],
    "size": n,
    "items": len(prompt),
    "first": given,
    "source": rest(prompt, source_size),
    "source_place": [(own[end(form)], not own[4]) for own in prompt],
    "source_size": len(prompt),
  }


def one_sequence(form, i, source_size, size):
  """What a decoder-only model is given: row p says token p + 1."""
  prompt, output, given, pad, _, delimiter = places_of(form, i)
  whole = [*prompt, delimiter, *output]
  n, total = len(prompt), source_size + 1 + size
  whole_padded = whole + [pad] * (total - len(whole))
  scored = range(n + given, n + len(output))
  return {
    "held": whole_padded[:-1],
    "said": whole_padded[1:],
    "weight": [float(row in scored) for row in range(total - 1)],
    # Of what is given, the token held; of what is said, the token to say.
    "place": [(own[end(form)], not own[4]) for own in prompt]
    + [(own[2], not own[4]) for own in output],
    "size": len(whole),
    "items": n,
    "first": n + given,
  }


WANTED = dict(zip(packing.KINDS, (two_sequences, one_sequence), strict=True))


def check_coordinates(found, i, wanted):
  """Of example i (or of all), where it holds a token."""
  i = min(i, len(found.segment) - 1)
  assert found.segment[i].tolist() == [own[1] for own in wanted]
  assert np.array_equal(found.index, np.arange(len(wanted)))
  for number, (_, segment, left, right, _) in enumerate(wanted):
    if segment != PAD and found.axes == 1:
      assert found.left[i, number].tolist() == [left]
      assert found.right[i, number].tolist() == [right]


def check_places(found, i, wanted, size):
  i = min(i, len(found.place) - 1)
  assert np.array_equal(found.index, np.arange(found.place.shape[1]))
  assert found.size[i].tolist() == [size]
  for number, (place, digit) in enumerate(wanted):
    assert found.digit[i, number] == digit
    if found.place.shape[-1] == 1:
      assert found.place[i, number].tolist() == [place]


@every_kind
@every_form
def test_a_batch_is_what_its_text_says(form, kind):
  batch = plain.draw_examples(form).batch[kind]
  sizes = [
    tokens.ids.shape[1] for tokens in plain.draw_examples(form).example[:2]
  ]
  for i in CHOSEN:
    wanted = WANTED[kind](form, i, *sizes)
    assert batch.inputs[i].tolist() == [own[0] for own in wanted["held"]]
    assert batch.target[i].tolist() == [own[0] for own in wanted["said"]]
    assert batch.weight[i].tolist() == wanted["weight"]
    assert batch.prompt_length[i] == wanted["items"]
    assert batch.first_scored[i] == wanted["first"]
    check_coordinates(batch.keys, i, wanted["held"])
    check_coordinates(batch.rows, i, wanted["said"])
    check_places(batch.places, i, wanted["place"], wanted["size"])
    if "source" in wanted:
      assert batch.source[i].tolist() == [own[0] for own in wanted["source"]]
      check_coordinates(batch.source_keys, i, wanted["source"])
      where = wanted["source_place"], wanted["source_size"]
      check_places(batch.source_places, i, *where)
    else:
      assert batch[-3:] == (None, None, None)


@every_kind
@every_form
def test_examples_share_coordinates_unless_their_lengths_differ(form, kind):
  batch = plain.draw_examples(form).batch[kind]
  count = COUNT if FORMS[form].ragged else 1
  for where in (batch.rows, batch.keys, batch.source_keys):
    if where is not None:
      assert len(where.segment) == len(where.left) == len(where.right) == count
  for where in (batch.places, batch.source_places):
    if where is not None:
      assert len(where.place) == len(where.digit) == len(where.size) == count


@every_kind
@pytest.mark.parametrize("form", [f for f in FORMS if FORMS[f].ragged])
def test_lengths_differ_in_a_batch_and_every_row_after_them_is_pad(form, kind):
  """The premise of the tests above, seen from the batch alone."""
  batch = plain.draw_examples(form).batch[kind]
  assert len(set(batch.prompt_length.tolist())) > 3
  pad = FORMS[form].pad
  assert ((batch.rows.segment == PAD) == (batch.target == pad)).all()
  assert ((batch.keys.segment == PAD) == (batch.inputs == pad)).all()
  assert not batch.weight[batch.rows.segment == PAD].any()


@every_kind
@every_form
def test_what_is_given_is_not_scored(form, kind):
  found = plain.draw_examples(form)
  batch, example = found.batch[kind], found.example
  given = np.broadcast_to(example.num_given, COUNT)
  outputs = np.broadcast_to(example.output.length, COUNT)
  assert (batch.weight.sum(axis=1) == outputs - given).all()
  assert (batch.first_scored == batch.weight.argmax(axis=1)).all()
  start = batch.prompt_length if kind == "decoder_only" else 0
  assert (batch.first_scored - start == given).all()


def test_hints_are_given_some_outputs_and_main_tasks_none():
  most = {
    form: np.max(plain.draw_examples(form).example.num_given) for form in FORMS
  }
  assert not any(most[form] for form in MAIN)
  assert most["sort_successor"] == 1 and most["sort_fill"] == plain.LONGEST


# A prompt in more room.


@functools.cache
def in_room(form, kind, longest):
  """One test example by itself, at a length below every bound."""
  task = MAIN[form]
  name = next(iter(task.test_sets))
  found = dataset.test_batch(
    task, kind, name, jax.random.key(0), jnp.arange(2), 3, 5, longest, ()
  )
  return jax.tree.map(np.asarray, found)


@every_kind
@pytest.mark.parametrize("form", ("successor", "sort"))
def test_a_prompt_in_more_room_is_the_same(form, kind):
  small, large = (in_room(form, kind, longest) for longest in (6, 11))
  for name in ("inputs", "target", "weight", "source"):
    a, b = getattr(small, name), getattr(large, name)
    if a is not None:
      rest = 0 if name == "weight" else MAIN[form].pad
      assert a.shape[1] < b.shape[1]
      assert np.array_equal(a, b[:, : a.shape[1]])
      assert (b[:, a.shape[1] :] == rest).all()
  for name in ("rows", "keys", "source_keys"):
    a, b = getattr(small, name), getattr(large, name)
    if a is not None:
      size = a.segment.shape[1]
      held = a.segment != PAD
      assert np.array_equal(a.segment, b.segment[:, :size])
      assert (b.segment[:, size:] == PAD).all()
      assert np.array_equal(a.left[held], b.left[:, :size][held])
      assert np.array_equal(a.right[held], b.right[:, :size][held])
      assert np.array_equal(a.num_tokens(), b.num_tokens())
  assert np.array_equal(small.prompt_length, large.prompt_length)
  assert np.array_equal(small.first_scored, large.first_scored)
  assert np.array_equal(small.places.size, large.places.size)


# What lines need of the coordinates.

ARITHMETIC = [f for f in MAIN if isinstance(MAIN[f], ArithmeticTask)]


@pytest.mark.parametrize("form", ARITHMETIC)
def test_a_row_finds_its_digit_at_stride_times_row_from_the_right(form):
  """And the row that says `&` the token on the operand's left."""
  task = MAIN[form]
  batch = plain.draw_examples(form).batch["encoder_decoder"]
  keys, width = batch.source_keys, plain.WIDTH
  text = task.vocabulary.decode(batch.source[-1])
  text = text.rstrip("@")
  operands, marks = plain.operand_texts(text), "$" + task.operator
  if task.interleaved:  # the second operand is the right one of each pair
    operands, marks = operands[1:], marks[1:]
  for segment, stride in enumerate(task.strides):
    digits = operands[segment][::-1]
    digits *= width if len(digits) < width else 1
    wanted = digits + (marks[segment] if stride else digits[0])
    found = ""
    for row in range(width + 1):
      at = (keys.segment[0] == segment) & (keys.right[0, :, 0] == stride * row)
      (key,) = np.flatnonzero(at)
      found += text[key]
    assert found == wanted
