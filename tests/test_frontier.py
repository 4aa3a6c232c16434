"""The longest length that is right, and hard inputs: asked for by a field."""

from types import SimpleNamespace

import numpy as np
import pytest
import untrained
from rows import row as made_row

from lengthgen_jax.config.build import build
from lengthgen_jax.evaluation import measures
from lengthgen_jax.evaluation.trained import EvalSpec, Model
from lengthgen_jax.pipelines import evaluate


class Planted:
  """A model whose exact match is a function of the length alone."""

  experiment = SimpleNamespace(train_length=6)

  def __init__(self, exact_match):
    self.exact_match = exact_match
    self.tested = []

  def batches(self, test):
    self.tested.append(test.length)
    right = round(self.exact_match(test.length) * test.samples)
    hits = np.arange(test.samples) < right
    for start in range(0, test.samples, 100):
      batch = hits[start : start + 100]
      yield batch, len(batch)

  def matches(self, batch):
    return batch


def planted(exact_match, bound=100, samples=300, rows=()):
  """The row of a planted model's frontier, and the lengths that were tested."""
  model = Planted(exact_match)
  test = EvalSpec("equal", "equal", (), bound, samples)
  return measures.frontier(model, test, list(rows)), model.tested


CURVES = [(37, 100, 37), (6, 100, 6), (0, 100, 0), (99, 100, 99)]
CURVES += [(900, 100, 100), (900, 4, 4), (3, 4, 3), (24, 999, 24)]


@pytest.mark.parametrize("last_right, bound, value", CURVES)
def test_the_frontier_of_a_curve_that_falls_once(last_right, bound, value):
  row, tested = planted(lambda n: 1.0 if n <= last_right else 0.5, bound)
  assert row["value"] == value and row["bound"] == bound
  assert len(tested) == len(set(tested)) <= 14
  assert max(tested) <= min(bound, 2 * max(value, 6))  # long ones are dear
  # What the number rests on: that length was right, and the next one was not.
  is_right = {
    length: measures.lower_bound(correct, n) >= 0.99
    for length, correct, n in row["tried"]
  }
  assert is_right.get(value, value == 0)
  assert value == bound or not is_right[value + 1]


def test_it_is_the_lower_bound_that_must_reach_99_percent():
  enough = planted(lambda n: 1.0, samples=299)[0]
  assert enough["value"] == 100 and enough["n"] == 299
  short = planted(lambda n: 1.0, samples=298)[0]
  assert short["value"] == 0  # 298 of 298 prove 98.99 %
  assert planted(lambda n: 0.994, samples=1000)[0]["value"] == 0
  assert planted(lambda n: 0.997, samples=1000)[0]["value"] == 100


def test_the_first_failure_counts_where_a_curve_is_not_monotone():
  dips = lambda *lengths: lambda n: 0.2 if n in lengths else 1.0
  row, _ = planted(dips(24))
  assert row["value"] == 23
  known = lambda length, correct: made_row(correct, length=length, n=1000)
  row, tested = planted(dips(20), rows=[known(20, 200), known(60, 1000)])
  assert row["value"] == 19 and not {20, 60} & set(tested)
  assert [20, 200, 1000] in row["tried"]
  # A hopeless length is given up after one batch of three.
  row, _ = planted(lambda n: 0.0, bound=12)
  assert row["value"] == 0 and all(n == 100 for *_, n in row["tried"])
  # Too few samples, or others, say nothing.
  few = known(20, 0) | {"n": 100}
  other = known(20, 0) | {"test_set": "unequal"}
  assert planted(lambda n: 1.0, rows=[few, other])[0]["value"] == 100


def test_evaluation_looks_for_the_frontier_when_asked(monkeypatch, capsys):
  """Of every test set but 99…9+1, which is one input: no sample."""
  config = untrained.config("addition")
  config.eval.update(frontier=5, test_sets=("equal", "nines"))
  searched = []

  def frontier(model, test, rows):
    searched.append(test)
    return {"value": 2.0}

  monkeypatch.setattr(measures, "frontier", frontier)
  model = Model(build(config), {}, {})
  rows = evaluate.frontiers(config, model, [], 60)
  assert [(x["test_set"], x["length"]) for x in rows] == [("equal", None)]
  (test,) = searched
  assert (test.length, test.samples) == (5, config.eval.frontier_samples)
  assert "up to 2 digits (tried up to 5)" in capsys.readouterr().err
  config.eval.frontier = 0
  assert not evaluate.frontiers(config, model, [], 60)


def test_hard_inputs_are_tested_when_asked():
  config = untrained.config("addition")
  config.eval.update(lengths=(3, 20), samples=(1000,), stress_samples=50)
  config.eval.chains = (2, 8)
  model = Model(build(config), {}, {})
  assert {t.name for t in evaluate.eval_specs(config, model)} == {"equal"}
  config.eval.stress = True
  tests = list(evaluate.eval_specs(config, model))
  names = {(t.name, t.length) for t in tests}
  assert {("chain_2", 3), ("chain_2", 20), ("chain_8", 20)} <= names
  assert ("chain_8", 3) not in names  # no room for it
  sets = {t.test_set for t in tests}
  assert sets == set(model.experiment.task.test_sets)
  for test in tests:
    lone = test.test_set in ("zeros", "nines")
    usual = test.test_set == "equal"
    assert test.samples == (1000 if usual else 50)
    most = 900 if test.length == 3 else 1000
    assert test.count == (1 if lone else min(test.samples, most))
