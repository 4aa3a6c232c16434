"""Certificates of running sums: a row depends on what they say it does."""

import numpy as np
import plain_tasks as plain
import pytest
from test_multiply_long import TARGET, TASK, model

from lengthgen_jax.errors import UsageError
from lengthgen_jax.interpret import certificate, grids, locality
from lengthgen_jax.interpret.contexts import Contexts
from lengthgen_jax.interpret.states import States
from lengthgen_jax.interpret.tape import Place
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


def test_practice_is_what_fails_and_what_is_right_by_little(monkeypatch):
  """Of a model that nobody trained, and as if it were right in some inputs."""
  own = model()
  monkeypatch.setattr(grids, "DRAWN", 64)
  monkeypatch.setattr(grids, "CHUNK", 32)
  monkeypatch.setattr(grids, "THIN", 3)
  args = own.experiment, own.scaffold, own.params, 0
  found = grids.practice(*args)
  assert len(found["failing"]) == 64 and not found["thin"]
  n, m = own.experiment.data[0].longest(0)
  for text in found["failing"]:
    a, b = text.split("*")
    assert (len(a), len(b)) == (n, m)
  assert not own.hits(own.typed(found["failing"][0]))[1].all()
  # The least leads of right inputs, over all chunks.
  leads = np.random.default_rng(1).permutation(64) - 1.0
  chunks = iter(np.split(leads, 2))
  monkeypatch.setattr(grids, "_margins", lambda *_: next(chunks))
  monkeypatch.setattr(grids, "_product", lambda own, _: str(own.tolist()))
  drawn = np.random.default_rng(0).integers(0, 10, (64, 2, n)).tolist()
  texts = [str(drawn[i]) for i in np.argsort(leads)]
  again = grids.practice(*args)
  assert sorted(again["failing"]) == sorted(texts[:2])  # -1 and 0
  assert again["thin"] == texts[2:5]


def test_margins_are_leads_of_what_is_scored():
  batch = model().typed("12*34")
  shape = (*batch.target.shape, TASK.vocab_size)
  logits = np.random.default_rng(0).normal(size=shape).astype(np.float32)
  leads = []
  for row, token in zip(logits[0], batch.target[0].tolist(), strict=True):
    leads.append(row[token] - np.delete(row, token).max())
  scored = np.asarray(batch.weight[0]) > 0
  least = np.array(leads)[scored].min()
  np.testing.assert_allclose(grids._margins(batch, logits), [least], rtol=1e-6)
