"""Certificates of running sums: a row depends on what they say it does."""

import dataclasses
import types

import numpy as np
import plain_tasks as plain
import pytest
from test_multiply_long import TARGET, TASK, model

from lengthgen_jax.certify import certificate, receptive_fields, running_sums
from lengthgen_jax.certify.states import States
from lengthgen_jax.certify.transducer import Contexts, Position
from lengthgen_jax.errors import UsageError
from lengthgen_jax.pipelines import certify
from lengthgen_jax.tasks.multiply_long import RunningSum
from lengthgen_jax.tasks.packing import KINDS

TAPES = [
  running_sums.RowTransducer(RunningSum(first, TASK.end))
  for first in (False, True)
]


def rows(a: str, b: str) -> list[str]:
  """Running sums, least significant digit first."""
  text, size = plain.running_sums(a, b), len(a) + 1
  return [text[i : i + size] for i in range(0, len(text), size)]


def test_a_running_sum_says_the_digits_of_a_row():
  rng = np.random.default_rng(0)
  for _ in range(20):
    a, b = ("".join(map(str, rng.integers(0, 10, n))) for n in (5, 4))
    before = "000000"
    for j, row in enumerate(rows(a, b)):
      task = RunningSum(j == 0, TASK.end)
      state, told = task.initial_state, ""
      columns = zip("0" + a[::-1] + "0", before + "0", strict=True)
      for place, pair in enumerate(columns):
        digits = tuple(map(int, pair))
        assert task.possible(state, digits)
        if place == 6:
          assert task.ends(state, digits)
        state, digit = task.step(state, (digits[0], int(b[-1 - j]), digits[1]))
        told += str(digit)
      assert told[1:] == row
      before = row


def test_sums_before_are_all_that_there_can_be_and_no_other():
  """Of one digit a: by brute force over b of four digits."""
  reached = set()
  for a in range(10):
    for value in range(10**4):
      found = rows(str(a), str(value).zfill(4))
      reached.add((int(found[2][0]), a, int(found[2][1])))
  steps = (
    Position((2,), False, False),
    Position((0, 2), False, False),
    Position((), False, True),
  )
  contexts = Contexts(TAPES[0], steps)
  told = np.concatenate(list(contexts.chunks(1000)))
  assert {tuple(own[1:].tolist()) for own in told} == reached
  assert len(told) == contexts.count == 10 * len(reached)


@pytest.fixture(scope="module")
def surveyed():
  own = model()
  return own, running_sums.survey(own.experiment, own.scaffold)


def test_nothing_else_changes_what_a_row_says(surveyed):
  """Whole inputs say what the few digits of their rows' views say."""
  own, found = surveyed
  states = States(own.experiment, own.params, found.transducer)
  widest = max(e.width for examples in found.views.values() for e in examples)
  parts = own.experiment, own.scaffold, own.params, (widest, 3)
  gap, count = running_sums.rounding(
    states, found, certificate.ForwardPass(*parts), 0
  )
  assert gap < 1e-4 and count > 1000


def check_context(text: str, transducer, view, example, context) -> None:
  """The last row of a product's running sums (the first one, if that is what
  the view is of) has the digits of a context."""
  a, b = text.split("*")
  sums = rows(a, b[-1:] if transducer.task.first else b)
  last = view.answer_column is None  # the row of `&`
  before = sums[-1] if last else ["0" * 99, *sums][-2]
  now, digits = "-" * 99 if last else sums[-1], a[::-1] + "0" * 9
  for (kind, which, n), value in zip(view.columns((1,)), context, strict=True):
    place = example.places[n] if n >= 0 else 0
    held = {"said": now[place - 1], "given": digits[place - 1]}[kind]
    if which == 2:
      held = before[place]
    if which == 1:
      held = str(value) if last else b[-1 if transducer.task.first else 0]
    assert held == str(value), (text, kind, which, place)


def test_a_context_is_one_of_a_product(surveyed):
  rng, (_, found) = np.random.default_rng(0), surveyed
  for contexts, (view, examples) in zip(
    found.contexts, found.views.items(), strict=True
  ):
    own = next(contexts.chunks(5000))
    for context in rng.choice(own, 3):
      where = contexts.transducer, view, examples[0], context
      check_context(running_sums.product_with_context(*where), *where)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_meet_earlier_digits_of_b_are_refused(kind, monkeypatch):
  """The digit of the row before, seen in a layer whose keys have seen b."""
  monkeypatch.setattr(receptive_fields, "widths", lambda *_: range(2, 4))
  own = model(kind)
  assert running_sums.survey(own.experiment, own.scaffold).cases > 10**4
  lines = own.scaffold["self"]
  up = (lines.segment == TARGET) & (lines.intercept[..., 0] < 0)
  bad = own.scaffold | {"self": lines._replace(valid=lines.valid | up)}
  with pytest.raises(UsageError, match="beyond the row before"):
    running_sums.survey(own.experiment, bad)
  other = dataclasses.replace(own, scaffold=bad)
  found = certify._certificate(None, other, None)  # other seeds may do
  assert found["value"] is None and found["verdict"].startswith("not tried: a")


def test_products_to_practice_on_have_the_contexts(surveyed):
  """And are of training sizes: failing ones several times."""
  random, (_, survey) = np.random.default_rng(0), surveyed
  tallies, found = [], 0
  for contexts, (view, examples) in zip(
    survey.contexts, survey.views.items(), strict=True
  ):
    drawn = random.choice(next(contexts.chunks(5000)), 4)
    for context in drawn:
      where = contexts.transducer, view, examples[0], context
      told = running_sums.products(*where, 4, random)
      found += bool(told)
      for text in told[:3]:
        check_context(text, *where)
        assert len(text.split("*")[1]) == 4
    thin = [[-1.0, drawn[0].tolist()], [2.0, drawn[1].tolist()]]
    tallies.append(certificate.Tally(thin=thin))
  assert found > len(tallies)
  trained = lambda n: types.SimpleNamespace(
    data=[types.SimpleNamespace(longest=lambda _: (n, 4))]
  )
  inputs = running_sums.inputs_to_train_on(survey, tallies, trained(4), 0)
  assert len(inputs["failing"]) > 2 * len(inputs["thin"]) > 0
  for text in inputs["failing"] + inputs["thin"]:
    assert max(map(len, text.split("*"))) <= 4
  assert not any(
    running_sums.inputs_to_train_on(survey, tallies, trained(0), 0).values()
  )
