"""Packed batches of every task, in both families, against plain Python."""

from typing import NamedTuple

import numpy as np
import plain_tasks as plain
import pytest
from plain_tasks import COUNT, FORMS

from lengthgen_jax.coordinates import PAD
from lengthgen_jax.tasks.arithmetic import ArithmeticTask
from lengthgen_jax.tasks.items import ItemTask
from lengthgen_jax.tasks.packing import KINDS

# Of every kind of prompt and of output: operands one after the other, side by
# side and of one digit, one output, lists, parts of outputs that are given,
# numbers in order of reading, queries, and grids of either form.
FORM_NAMES = """
addition addition-aligned multiply parity_classification multiply_long
sort sort_fill increment mqmtar automaton
"""
every_form = pytest.mark.parametrize("form", FORM_NAMES.split())
every_kind = pytest.mark.parametrize("kind", KINDS)

CHOSEN = [*range(7), 8, 20, 37, 77, COUNT - 1]  # of the examples


# What a batch should be, from the text alone.


class Cell(NamedTuple):
  """A token, where it stands, and whether it is a mark between segments."""

  token: int
  segment: int
  left: int | None = None
  right: int | None = None
  is_mark: bool = False


def with_ends(tokens, segments, marks) -> list[Cell]:
  """Cells of a run of tokens: offsets from both ends of their segments."""
  cells = []
  for i, (token, segment) in enumerate(zip(tokens, segments, strict=True)):
    first = segments.index(segment)
    last = len(segments) - 1 - segments[::-1].index(segment)
    cells.append(Cell(token, segment, i - first, last - i, marks[i]))
  return cells


def prompt_cells(form, i, prompt) -> list[Cell]:
  task = FORMS[form]
  if isinstance(task, ItemTask):
    segments, marks = [0] * len(prompt), [False] * len(prompt)
  elif isinstance(task, ArithmeticTask):
    text = task.decode(prompt)
    marks = [not symbol.isdigit() for symbol in text]
    segments = [sum(marks[: j + 1]) - 1 for j in range(len(marks))]
    if plain.is_aligned(text):
      segments = [0] * len(prompt)
  else:  # any other task states its own
    tokens = plain.draw_examples(form).example.prompt
    segments = tokens.segment[i, : len(prompt)].tolist()
    marks = (~tokens.digit[i, : len(prompt)]).tolist()
  return with_ends(prompt, segments, marks)


def expected_batch(form, kind, i) -> dict:
  """Cells of inputs, targets and source, and the other fields, of example i."""
  task, example = FORMS[form], plain.draw_examples(form).example
  prompt, prefix, scored = plain.split_example(example, i)
  source_size, size = (len(tokens.ids[i]) for tokens in example[:2])
  target = len(task.segments)
  n = len(prefix + scored)
  output = with_ends(prefix + scored, [target] * n, [False] * n)
  source = prompt_cells(form, i, prompt)
  pad = Cell(task.pad, PAD)
  place = lambda cell, end: (getattr(cell, end), not cell.is_mark)
  source_places = [(*place(x, task.anchor), x.segment) for x in source]
  output_places = [(*place(x, "left"), target) for x in output]
  if kind == "encoder_decoder":
    start = Cell(task.start, target + 1, 0, 0, True)
    first, total = len(prefix), size
    inputs = [start, *output] + [pad] * (size - n)
    expected = {
      "inputs": inputs[:size],
      "target": output + [pad] * (size - n),
      "places": (output_places, n, target),
      "source": source + [pad] * (source_size - len(prompt)),
      "source_places": (source_places, len(prompt), target),
    }
  else:  # row p says token p + 1
    delimiter = Cell(task.delimiter, target + 1, 0, 0, True)
    whole = [*source, delimiter, *output]
    first, total = len(prompt + prefix), source_size + size
    whole_padded = whole + [pad] * (total + 1 - len(whole))
    expected = {
      "inputs": whole_padded[:-1],
      "target": whole_padded[1:],
      # Of what is given, the token held; of what is said, the token to say.
      "places": (source_places + output_places, len(whole), target),
    }
  is_scored = lambda row: first <= row < first + len(scored)
  return expected | {
    "weight": [float(is_scored(row)) for row in range(total)],
    "prompt_length": len(prompt),
    "first_scored": first,
  }


def check_coordinates(coordinates, i, cells):
  """Of example i (or of all), where it holds a token."""
  i = min(i, len(coordinates.segment) - 1)
  segments = np.array([cell.segment for cell in cells])
  assert np.array_equal(coordinates.segment[i], segments)
  assert np.array_equal(coordinates.index, np.arange(len(cells)))
  if coordinates.axes == 1:
    held = segments != PAD
    for end in ("left", "right"):
      offsets = getattr(coordinates, end)[i, held, 0].tolist()
      assert offsets == [getattr(x, end) for x in cells if x.segment != PAD]


def check_places(places, i, expected, size, target):
  i = min(i, len(places.place) - 1)
  assert np.array_equal(places.index, np.arange(places.place.shape[1]))
  assert places.size[i].tolist() == [size]
  numbers, digits, segments = map(list, zip(*expected, strict=True))
  segments += [target] * (places.segment.shape[1] - len(segments))
  assert places.segment[i].tolist() == segments[: places.segment.shape[1]]
  assert places.digit[i, : len(digits)].tolist() == digits
  if places.place.shape[-1] == 1:
    assert places.place[i, : len(digits), 0].tolist() == numbers


@every_kind
@every_form
def test_a_batch_is_what_its_text_says(form, kind):
  batch = plain.draw_batch(form, kind)
  for i in CHOSEN:
    expected = expected_batch(form, kind, i)
    for name in ("inputs", "target", "source"):
      if name in expected:
        tokens = [cell.token for cell in expected[name]]
        assert getattr(batch, name)[i].tolist() == tokens
    for name in ("weight", "prompt_length", "first_scored"):
      assert getattr(batch, name)[i].tolist() == expected[name]
    check_coordinates(batch.keys, i, expected["inputs"])
    check_coordinates(batch.rows, i, expected["target"])
    check_places(batch.places, i, *expected["places"])
    if kind == "encoder_decoder":
      check_coordinates(batch.source_keys, i, expected["source"])
      check_places(batch.source_places, i, *expected["source_places"])
    else:
      assert batch[-3:] == (None, None, None)
