"""Certificates of running sums: a row depends on what they say it does."""

import types

import numpy as np
import plain_tasks as plain
import pytest
from test_multiply_long import TARGET, TASK, model

from lengthgen_jax.errors import UsageError
from lengthgen_jax.interpret import certificate, grids, locality
from lengthgen_jax.interpret.contexts import Contexts
from lengthgen_jax.interpret.states import States
from lengthgen_jax.interpret.tape import Place
from lengthgen_jax.tasks import data
from lengthgen_jax.tasks.multiply_long import RunningSum
from lengthgen_jax.tasks.pack import KINDS

TAPES = [grids.RowTape(RunningSum(first, TASK.end)) for first in (False, True)]


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
      state, told = task.begin, ""
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
    Place((2,), False, False),
    Place((0, 2), False, False),
    Place((), False, True),
  )
  contexts = Contexts(TAPES[0], steps)
  told = np.concatenate(list(contexts.chunks(1000)))
  assert {tuple(own[1:].tolist()) for own in told} == reached
  assert len(told) == contexts.count == 10 * len(reached)


@pytest.fixture(scope="module")
def surveyed():
  own = model()
  return own, grids.survey(own.experiment, own.scaffold)


def test_nothing_else_changes_what_a_row_says(surveyed):
  """Whole inputs say what the few digits of their rows' views say."""
  own, found = surveyed
  states = States(own.experiment, own.params, found.tape)
  widest = max(e.width for examples in found.views.values() for e in examples)
  parts = own.experiment, own.scaffold, own.params, (widest, grids.ROWS)
  gap, count = grids.rounding(states, found, certificate.Dense(*parts), 0)
  assert gap < 1e-4 and count > 10_000


def test_a_context_is_one_of_a_product(surveyed):
  rng, (_, found) = np.random.default_rng(0), surveyed
  for contexts, (view, examples) in zip(
    found.contexts, found.views.items(), strict=True
  ):
    own = next(contexts.chunks(5000))
    example = examples[0]
    for context in rng.choice(own, 3):
      text = grids.typed(contexts.tape, view, example, context)
      sums = rows(*text.split("*"))
      last = view.asked is None  # the row of `&`
      before = sums[-1] if last else ["0" * 99, *sums][-2]
      now, a = "-" * 99 if last else sums[-1], text.split("*")[0][::-1]
      for (kind, which, n), value in zip(
        view.columns((1,)), context, strict=True
      ):
        place = example.places[n] if n >= 0 else 0
        held = {"said": now[place - 1], "given": (a + "0" * 9)[place - 1]}[kind]
        if which == 2:
          held = before[place]
        if which == 1:
          held = str(value) if last else text.split("*")[1][0]
        assert held == str(value), (text, kind, which, place)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_meet_earlier_digits_of_b_are_refused(kind, monkeypatch):
  """The digit of the row before, seen in a layer whose keys have seen b."""
  monkeypatch.setattr(locality, "widths", lambda *_: range(2, 4))
  own = model(kind)
  assert grids.survey(own.experiment, own.scaffold).cases > 10**4
  lines = own.scaffold["self"]
  up = (lines.segment == TARGET) & (lines.intercept[..., 0] < 0)
  bad = own.scaffold | {"self": lines._replace(valid=lines.valid | up)}
  with pytest.raises(UsageError, match="beyond the row before"):
    grids.survey(own.experiment, bad)


@pytest.mark.parametrize("kind", KINDS)
def test_products_to_practice_on_have_the_contexts(kind, monkeypatch):
  """And are of training sizes: failing ones several times."""
  monkeypatch.setattr(locality, "widths", lambda *_: range(4, 6))
  own, random = model(kind), np.random.default_rng(0)
  survey = grids.survey(own.experiment, own.scaffold)
  tallies, wanted = [], {}
  for view, examples in survey.views.items():
    example = examples[0]
    n = example.width - 2
    items = random.integers(0, 10, (2, 2, n if n > 3 else 3)).astype(np.int32)
    items[:, 0, n:], items[:, 1, 3:] = 0, 0
    pairs = [(one, [n, 3]) for one in items]
    batch = data.typed_batch(TASK, kind, pairs, (n, 3), (n, 3))
    contexts = grids._contexts(survey.tape, view, example, items, batch)
    thin = [[-1.0, contexts[0].tolist()], [2.0, contexts[1].tolist()]]
    tallies.append(certificate.Tally(thin=thin))
    for context in contexts:
      found = grids.products(
        *(survey.tape, view, example, context, own.experiment, random)
      )
      if len(wanted) < 40 and found:
        pairs = [TASK.parse(text) for text in found[:3]]
        batch = data.typed_batch(TASK, kind, pairs, (n, 3), (n, 3))
        again = np.stack([np.pad(x, [(0, 0), (0, 9)]) for x, _ in pairs])
        told = grids._contexts(survey.tape, view, example, again, batch)
        assert (told == context).all()
        wanted[view] = True
  assert len(wanted) > 5
  trained = lambda n: types.SimpleNamespace(
    kind=kind, task=TASK, data=[types.SimpleNamespace(longest=lambda _: (n, n))]
  )
  inputs = grids.practice(survey, tallies, trained(4), 0)
  assert len(inputs["failing"]) > 2 * len(inputs["thin"]) > 0
  for text in inputs["failing"] + inputs["thin"]:
    assert max(map(len, text.split("*"))) <= 4
  assert not any(grids.practice(survey, tallies, trained(3), 0).values())
