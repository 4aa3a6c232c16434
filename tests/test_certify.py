"""Certificates: all cases, and what is made of them."""

import dataclasses
import json
import os
import signal

import jax
import numpy as np
import pytest
from local_models import small
from ml_collections import ConfigDict

from lengthgen_jax.certify import certificate, survey
from lengthgen_jax.certify.certificate import Tally
from lengthgen_jax.certify.logits import LayerwiseLogits
from lengthgen_jax.errors import Interrupted
from lengthgen_jax.pipelines import certify

LENGTHS = {"successor": (1, 2), "parity": (1, 5), "modular": (1, 3)}
LENGTHS |= {"increment": (1, 2)}  # zero is no token of value 0
EXHAUSTIVE = ConfigDict({"exhaustive": True, "max_refined": 20_000})
FIRST_WRONG = ConfigDict({"exhaustive": False, "max_refined": 20_000})
by_task = pytest.mark.parametrize("task", LENGTHS)


def cases_and_margins(layerwise, group):
  """(contexts [B, columns], margins [B]) of a group of rows."""
  contexts = np.concatenate(list(group.contexts.chunks(1 << 20)))
  logits, _ = layerwise(group.receptive_field, contexts)
  answers = group.receptive_field.right_tokens(contexts)
  return contexts, certificate.margins(logits, answers)


@by_task
def test_wrong_rows_are_those_that_all_inputs_find(task):
  model, surveyed, layerwise, dense, tallies = small(task)
  base, slack = model.experiment.task.base, model.experiment.task.slack
  zero = model.experiment.task.first_item
  outcomes = []
  for length in LENGTHS[task]:
    width = length + slack
    items = np.full((base**length, 1, width), zero)
    digits = np.indices((base,) * length).reshape(length, -1).T
    items[:, 0, :length] += digits
    batch, logits = dense(items, width)
    is_right = logits.argmax(-1) == batch.target
    for group, tally in zip(surveyed.groups, tallies, strict=True):
      cases, margins = cases_and_margins(layerwise, group)
      wrong = set(map(tuple, cases[margins <= 0].tolist()))
      assert len(wrong) == tally.wrong
      for row in group.rows:
        if row.width != width:
          continue
        columns = [
          batch.target[:, row.places[number]]
          if kind == "output"
          else items[:, operand, row.places[number]]
          for kind, operand, number in group.receptive_field.columns
        ]
        contexts = list(zip(*columns, strict=True)) or [()] * len(items)
        assert set(contexts) == set(map(tuple, cases.tolist()))
        outcome = [context not in wrong for context in contexts]
        assert outcome == is_right[:, row.index].tolist()
        outcomes += outcome
  assert 0 < np.mean(outcomes) < 1


@by_task
def test_inputs_of_a_context_are_right_or_wrong_as_it_is(task):
  model, surveyed, layerwise, dense, _ = small(task)
  rng, outcomes = np.random.default_rng(0), set()
  for group in surveyed.groups:
    cases, margins = cases_and_margins(layerwise, group)
    worst, *_, best = np.argsort(margins) if len(margins) > 1 else [0, 0]
    for k, row, generator in (
      (worst, group.rows[0], None),
      (best, group.rows[0], rng),
      (worst, group.rows[-1], rng),
      (best, group.rows[-1], None),
    ):
      places = model.experiment.nonzero_places(row.width)
      items = survey.find_input(
        group.receptive_field, row, cases[k], places, generator
      )
      assert items.shape == (1, row.width)
      assert (items[:, places:] == model.experiment.task.first_item).all()
      batch, logits = dense(items[None], row.width)
      is_right = logits[0, row.index].argmax() == batch.target[0, row.index]
      assert is_right == (margins[k] > 0)
      outcomes.add(bool(is_right))
  assert outcomes == {False, True}


# Tallies.


@pytest.mark.parametrize("max_thin", (32, 2048))
def test_a_tally_in_pieces_is_that_of_all_at_once(monkeypatch, max_thin):
  monkeypatch.setattr(certificate, "MAX_THIN", max_thin)
  rng = np.random.default_rng(0)
  contexts = rng.integers(0, 10, (500, 3)).astype(np.uint8)
  margins = (rng.normal(size=500) * 9 + 9).astype(np.float32)
  rounding = rng.uniform(0, 0.1, 500)
  tally = Tally()
  for part in np.split(np.arange(500), (1, 90, 300)):
    tally.add(contexts[part], margins[part], rounding[part])
    # As it is written and read again.
    tally = Tally(**json.loads(json.dumps(dataclasses.asdict(tally))))
  assert (tally.cases, tally.wrong) == (500, (margins <= 0).sum())
  assert tally.margin == margins.min()
  shares = rounding / np.abs(margins)
  assert (tally.rounding, tally.share) == (rounding.max(), shares.max())
  assert tally.unsure == (shares >= 1).sum() > 0
  edges = np.array(certificate.HISTOGRAM_EDGES)
  inside = (margins[:, None] >= edges[:-1]) & (margins[:, None] < edges[1:])
  assert tally.histogram == inside.sum(axis=0).tolist()
  num_thin = (margins < certificate.THIN_MARGIN).sum()
  order = np.argsort(margins)[: min(num_thin, max_thin)]
  assert 32 < num_thin < 200 and 0 < (margins <= 0).sum() < num_thin
  assert [margin for margin, _ in tally.thin] == margins[order].tolist()
  thin = [context for _, context in tally.thin]
  np.testing.assert_array_equal(thin, contexts[order])


def test_what_is_no_number_is_wrong():
  contexts = np.array([[0], [1], [1], [2]], np.uint8)
  answers = contexts[:, 0].astype(int)
  logits = np.array(
    [[3, 1, 1], [np.nan] * 3, [np.inf, np.inf, 0], [5, 6, 6.5]], np.float32
  )
  margins = certificate.margins(logits, answers)
  assert margins.tolist() == [2, -np.inf, -np.inf, 0.5]
  tally = Tally()
  errors = np.full((4, 3), 0.1, np.float32)
  errors[3] = np.nan
  bounds = certificate.bounds(logits, answers, errors)
  np.testing.assert_allclose(bounds, [0.2, 0.2, 0.2, np.inf])
  tally.add(contexts, margins, bounds)
  assert (tally.rounding, tally.share, tally.unsure) == (np.inf, np.inf, 1)
  assert (tally.wrong, tally.margin) == (2, -np.inf)
  assert sum(tally.histogram) == 4


class Killed(BaseException):
  """What no code of ours catches."""


@pytest.mark.parametrize("is_killed", (True, False))
def test_a_count_cut_off_and_run_again_is_the_same(
  is_killed, tmp_path, monkeypatch
):
  model, surveyed, layerwise, _, unbounded = small("successor")
  add, calls = Tally.add, []

  def add_some(tally, *args):
    calls.append(args)
    if len(calls) == num_bounded + before + 2:
      monkeypatch.setattr(certify, "SAVE_SECONDS", -1)
    if len(calls) == num_bounded + before + 3:  # in the middle of a group
      monkeypatch.setattr(certify, "SAVE_SECONDS", 99)
      if is_killed:
        raise Killed
      os.kill(os.getpid(), signal.SIGTERM)
    add(tally, *args)

  monkeypatch.setattr(Tally, "add", add_some)
  chunks = [-(-group.contexts.count // 128) for group in surveyed.groups]
  num_bounded = before = sum(chunks)  # which is never reached
  tallies = certify.tally_cases(
    EXHAUSTIVE, model, surveyed, layerwise, tmp_path
  )
  # After the first chunk with a bound that is not below its margin there are
  # none, and all cases are tried without.
  num_bounded = len(calls) - sum(chunks)
  assert 0 < num_bounded < sum(chunks)
  (first,) = np.flatnonzero([tally.unsure for tally in tallies])
  for index, (tally, other) in enumerate(zip(tallies, unbounded, strict=True)):
    bounded = tally.cases - tally.unbounded
    assert (tally.cases, tally.wrong) == (other.cases, other.wrong)
    assert tally.thin == other.thin and tally.histogram == other.histogram
    assert index == first or bounded == tally.cases * (index < first)
  assert (
    0 < tallies[first].cases - tallies[first].unbounded <= num_bounded * 128
  )
  (tmp_path / certify.PARTIAL).unlink()
  before, calls[:] = sum(chunks[: np.argmax(chunks)]), []
  args = surveyed, layerwise, tmp_path
  with pytest.raises(Killed if is_killed else Interrupted):
    certify.tally_cases(EXHAUSTIVE, model, *args)
  saved = json.loads((tmp_path / certify.PARTIAL).read_text())
  assert saved["unbounded"]["chunks"] == 2 + (not is_killed)
  assert certify.tally_cases(EXHAUSTIVE, model, *args) == tallies
  # Nothing was counted twice.
  assert len(calls) == num_bounded + sum(chunks) + is_killed
  # Another model starts anew.
  params = jax.tree.map(lambda x: x + 1, model.params)
  calls[:] = [None] * 2 * sum(chunks)
  certify.tally_cases(
    EXHAUSTIVE, dataclasses.replace(model, params=params), *args
  )
  assert len(calls) > 3 * sum(chunks)


def test_many_cases_are_tried_without_bounds_first(tmp_path, monkeypatch):
  """A wrong model is then found without any bound; a right one has them."""
  model, surveyed, layerwise, _, unbounded = small("successor")
  monkeypatch.setattr(certify, "MANY_CASES", 0)
  args = EXHAUSTIVE, model, surveyed, layerwise, tmp_path
  assert certify.tally_cases(*args) == unbounded
  assert all(tally.unbounded == tally.cases for tally in unbounded)
  (tmp_path / certify.PARTIAL).unlink()
  answer = lambda logits, answers: np.full(len(answers), 1e9)
  monkeypatch.setattr(certificate, "margins", answer)
  tallies = certify.tally_cases(*args)
  assert not any(tally.unbounded or tally.unsure for tally in tallies)
  assert all(0 < tally.rounding < 1e9 for tally in tallies)
  # A kept state of the bounds is not taken for one of all cases.
  saved = json.loads((tmp_path / certify.PARTIAL).read_text())
  counts = [
    sum(tally["cases"] for tally in saved[name]["tallies"])
    for name in ("bounded", "unbounded")
  ]
  assert counts == [surveyed.cases] * 2


def test_a_count_may_end_where_the_narrowest_fail(tmp_path):
  """And has then counted all contexts of the receptive field that fails."""
  model, surveyed, _, dense, tallies = small("successor")
  layerwise = LayerwiseLogits(
    model.experiment, model.params, surveyed.transducer, chunk_size=4
  )
  first = certify.tally_cases(FIRST_WRONG, model, surveyed, layerwise, tmp_path)
  assert 0 < len(first) < len(tallies)
  assert not any(tally.wrong for tally in first[:-1])
  counts = lambda tallies: [(tally.cases, tally.wrong) for tally in tallies]
  assert counts(first) == counts(tallies[: len(first)])
  assert first[-1].wrong > 0 and first[-1].cases > layerwise.chunk_size
  shortest, shortest_of_all = (
    certificate.counterexamples(surveyed, counted, model)[0]
    for counted in (first, tallies)
  )
  assert len(shortest) == len(shortest_of_all)


def test_a_certificate_is_kept_if_it_says_all_that_is_asked():
  model, *_ = small("successor")
  same = {"checksum": certificate.checksum(model), "receptive_fields": [1]}
  is_valid = lambda exhaustive, **fields: certify.is_valid(
    same | fields,
    ConfigDict({"exhaustive": exhaustive, "max_refined": 7}),
    model,
  )
  assert is_valid(True, complete=True) and is_valid(False, complete=True)
  assert is_valid(False, complete=False) and not is_valid(True, complete=False)
  assert not is_valid(False, complete=False, receptive_fields=[])  # not tried
  assert not is_valid(True, complete=True, checksum="of others")
  # Of these parameters, but with other lines.
  lines = model.scaffold["self"]
  lines = lines._replace(value=np.asarray(lines.value) - 1)
  other = dataclasses.replace(model, scaffold=model.scaffold | {"self": lines})
  assert not certify.is_valid(same | {"complete": True}, EXHAUSTIVE, other)
  # Right, but without a bound, unless as many cases were bounded again.
  right = {"complete": True, "value": 1, "rounding": None}
  assert is_valid(True, **right | {"rounding": 0.5})
  assert not is_valid(True, **right)
  assert not is_valid(True, **right | {"value": None})  # undecided
  assert is_valid(True, **right | {"value": 0})
  assert not is_valid(True, **right, max_refined=6)
  assert is_valid(True, **right, max_refined=7)


# Verdicts.


@pytest.mark.parametrize(
  ("counted", "value", "words"),
  [
    (
      {},
      1,
      ("right for every length: 12,345 cases", "margin 2", "0.001", "5.0% of"),
    ),
    ({"width": 61}, 1, ("right for operands of up to 60 places",)),
    # The largest rounding may be that of a larger margin.
    ({"rounding": 3.0, "share": 0.99}, 1, ("right for every length",)),
    ({"rounding": None, "unsure": 7, "margin": 1e-4}, None, ("fail, but", "7")),
    (
      {"wrong": 1234, "margin": -3.0, "counterexamples": list("1234")},
      0,
      ("wrong on 1,234 of 12,345 cases", "shortest: 1, 2, 3;", "margin -3"),
    ),
    # Not if rounding may turn all of them, unless an input shows it.
    ({"wrong": 1, "margin": -9e-3, "unsure": 1}, None, ("known to fail",)),
    (
      {"wrong": 1, "margin": -9e-3, "unsure": 1, "counterexamples": ["1"]},
      0,
      (": 1;",),
    ),
    ({"wrong": 1, "margin": -1.0}, 0, ("no input known",)),
    (
      {"wrong": 1, "margin": -1.0, "complete": False},
      0,
      ("on 1 of the first 12,345 cases",),
    ),
    # What the model on whole inputs says otherwise is no rounding.
    ({"exceeding": 3}, None, ("undecided", "3 margins of the model on whole")),
    ({"exceeding": 3, "wrong": 1, "margin": -1.0}, None, ("undecided",)),
    # Nothing is proved by less than all cases, or by what is no number.
    ({"complete": False}, None, ("undecided",)),
    ({"cases": 0}, None, ("undecided",)),
    ({"wrong": 5, "margin": 0.0, "unsure": 5}, None, ("undecided",)),
    ({"margin": 0.0, "share": np.inf}, None, ("undecided",)),
    ({"margin": np.inf}, None, ("undecided",)),
    ({"margin": np.nan}, None, ("undecided",)),
    # Where the bound is too coarse, what was measured decides.
    ({"rounding": None, "unsure": 7}, 1, ("measured at most 2e-05", "7 of")),
    (
      {"rounding": None, "unsure": 7, "unbounded": 12_000},
      1,
      ("bound above 7 of 345 margins",),
    ),
    # And of contexts without a bound, whether they are wrong.
    (
      {"wrong": 1, "margin": -1.0, "unsure": 7, "unbounded": 12_000}
      | {"rounding": None},
      0,
      ("no input known", "7 of 345"),
    ),
    (
      {"wrong": 9, "margin": -1e-4, "unsure": 7, "unbounded": 12_000}
      | {"rounding": None},
      None,
      ("undecided",),
    ),
  ],
)
def test_a_verdict_says_what_was_counted(counted, value, words):
  usual = {"cases": 12345, "wrong": 0, "margin": 2.0, "rounding": 1e-3}
  usual |= {"share": 0.05, "unsure": 0, "unbounded": 0, "exceeding": 0}
  usual |= {"measured_rounding": 2e-5}
  counted = usual | {"counterexamples": [], "complete": True} | counted
  verdict = certificate.verdict(counted.get("width"), counted)
  assert verdict["value"] == value and "\n" not in verdict["verdict"]
  for word in words:
    assert word in verdict["verdict"]


@pytest.mark.parametrize("task", ("successor", "increment"))
def test_counterexamples_fail_and_are_no_longer_than_they_must_be(task):
  model, surveyed, _, dense, tallies = small(task)
  slack, zero = model.experiment.task.slack, model.experiment.task.first_item
  texts = certificate.counterexamples(surveyed, tallies, model)
  assert texts == sorted(texts, key=lambda text: (len(text), text))
  assert len(texts[0]) == 1
  for text in (texts[0], texts[-1]):
    padding = [(0, 0), (0, slack)]
    items = np.pad(
      model.experiment.task.parse(text)[0], padding, constant_values=zero
    )
    batch, _ = dense(np.repeat(items[None], 32, 0), len(text) + slack)
    assert not model.matches(batch)[1].any()
  inputs, again = (
    certificate.training_inputs(surveyed, tallies, 0) for _ in range(2)
  )
  assert inputs == again
  lengths = {len(text) for text in inputs["failing"] + inputs["thin"]}
  assert lengths == set(range(1, model.experiment.train_length + 1))


def test_rounding_is_within_its_bound_on_whole_inputs(monkeypatch):
  model, surveyed, layerwise, dense, _ = small("successor")
  rows = sum(len(group.rows) for group in surveyed.groups)
  monkeypatch.setattr(survey, "DENSE_ROWS", 20 * rows)
  compare = lambda layerwise: certificate.compare_with_dense(
    layerwise, surveyed, dense, 0
  )
  comparison = compare(layerwise)
  assert comparison.difference < 1e-4
  assert (comparison.num_margins, comparison.exceeding) == (20 * rows, 0)
  # Another model is no matter of rounding.
  head = "logits_dense_successor"
  bias = model.params[head]["bias"].at[3].add(0.5)
  params = model.params | {head: model.params[head] | {"bias": bias}}
  other = LayerwiseLogits(model.experiment, params, surveyed.transducer, 64)
  comparison = compare(other)
  np.testing.assert_allclose(comparison.difference, 0.5, atol=1e-3)
  assert comparison.exceeding > 0
  # What agrees exactly may still be rounded.
  equal = lambda logits, answers: np.ones(len(answers))
  monkeypatch.setattr(certificate, "margins", equal)
  assert 0 < compare(layerwise).difference < 1e-4
