"""Certificates: all cases, and what is made of them."""

import dataclasses
import functools
import json
import os
import signal
import types

import jax
import numpy as np
import pytest
from local_models import small

from lengthgen_jax.certify import certificate, verdict
from lengthgen_jax.certify.certificate import Tally
from lengthgen_jax.certify.states import States
from lengthgen_jax.errors import Interrupted
from lengthgen_jax.pipelines import certify

LIVE = {"successor": (1, 2), "parity": (1, 5), "modular": (1, 3)}


def from_items(dense, items, width: int):
  """(target, logits) of inputs."""
  batch, logits = dense(items, width)
  return batch.target, logits


def judged(survey, states, view, contexts):
  """(contexts [B, columns], margins [B]) of a view."""
  found = np.concatenate(list(contexts.chunks(1 << 20)))
  logits = states.logits(view, found)
  end = survey.transducer.task.end
  return found, certificate.margins(view, found, logits, end)


@pytest.mark.parametrize("task", LIVE)
def test_wrong_rows_are_those_that_all_inputs_find(task):
  own, survey, states, dense, tallies = small(task)
  base, found = own.experiment.task.base, []
  for live in LIVE[task]:
    width = live + own.experiment.task.slack
    items = np.zeros((base**live, 1, width), int)
    items[:, 0, :live] = np.indices((base,) * live).reshape(live, -1).T
    said, logits = from_items(dense, items, width)
    right = logits.argmax(-1) == said
    for view, contexts, tally in zip(
      survey.views, survey.contexts, tallies, strict=True
    ):
      cases, margins = judged(survey, states, view, contexts)
      wrong = {tuple(c) for c, m in zip(cases, margins, strict=True) if m <= 0}
      assert len(wrong) == tally.wrong
      for example in survey.views[view]:
        if example.width != width:
          continue
        columns = [
          said[:, example.places[number]]
          if kind == "said"
          else items[:, which, example.places[number]]
          for kind, which, number in view.columns(())
        ]
        met = list(zip(*columns, strict=True)) or [()] * len(items)
        assert set(met) == set(map(tuple, cases.tolist()))
        for context, good in zip(met, right[:, example.row], strict=True):
          assert good == (context not in wrong)
          found.append(good)
  assert 0 < np.mean(found) < 1


@pytest.mark.parametrize("task", LIVE)
def test_inputs_of_a_context_are_right_or_wrong_as_it_is(task):
  own, survey, states, dense, _ = small(task)
  rng, seen = np.random.default_rng(0), set()
  for (view, examples), contexts in zip(
    survey.views.items(), survey.contexts, strict=True
  ):
    cases, margins = judged(survey, states, view, contexts)
    order = np.argsort(margins)
    for k, example, source in (
      (order[0], examples[0], None),
      (order[-1], examples[0], rng),
      (order[0], examples[-1], rng),
      (order[-1], examples[-1], None),
    ):
      live = own.experiment.nonzero_places(example.width)
      items = certificate.input_with_context(
        survey, view, example, cases[k], live, source
      )
      assert items.shape == (1, example.width) and not items[:, live:].any()
      said, logits = from_items(dense, items[None], example.width)
      right = logits[0, example.row].argmax() == said[0, example.row]
      assert right == (margins[k] > 0)
      seen.add(bool(right))
  assert seen == {False, True}


@pytest.mark.parametrize("task", LIVE)
def test_values_have_a_code_of_their_own(task):
  transducer = small(task)[1].transducer
  values = (
    np.indices((transducer.values,) * 3).reshape(3, -1).T.astype(np.uint8)
  )
  code = States._code(
    types.SimpleNamespace(transducer=transducer), values, [0, 1, 2]
  )
  assert sorted(code) == list(range(len(values)))


# Tallies.


def drawn(count: int):
  rng = np.random.default_rng(0)
  contexts = rng.integers(0, 10, (count, 3)).astype(np.uint8)
  return contexts, (rng.normal(size=count) * 9 + 9).astype(np.float32)


def test_a_tally_in_pieces_is_that_of_all_at_once():
  contexts, margins = drawn(500)
  tally = Tally()
  for part in np.split(np.arange(500), (1, 90, 300)):
    tally.add(contexts[part], margins[part])
    # As it is written and read again.
    tally = Tally(**json.loads(json.dumps(dataclasses.asdict(tally))))
  assert (tally.cases, tally.wrong) == (500, (margins <= 0).sum())
  assert tally.margin == margins.min()
  edges = np.array(certificate.EDGES)
  inside = (margins[:, None] >= edges[:-1]) & (margins[:, None] < edges[1:])
  assert tally.histogram == inside.sum(axis=0).tolist()
  order = np.argsort(margins)[: certificate.THINNEST_KEPT]
  assert len(order) == 32 and margins[order].max() < 0
  assert [m for m, _ in tally.thin] == margins[order].tolist()
  assert [c for _, c in tally.thin] == contexts[order].tolist()


def test_what_is_no_number_is_wrong():
  view = types.SimpleNamespace(answer_column=0)
  contexts = np.array([[0], [1], [1], [2]], np.uint8)
  logits = np.array(
    [[3, 1, 1], [np.nan] * 3, [np.inf, np.inf, 0], [5, 6, 6.5]], np.float32
  )
  found = certificate.margins(view, contexts, logits, end=2)
  assert found.tolist() == [2, -np.inf, -np.inf, 0.5]
  tally = Tally()
  tally.add(contexts, found)
  assert (tally.wrong, tally.margin) == (2, -np.inf)
  assert sum(tally.histogram) == 4


def test_enumeration_goes_on_where_it_was_cut_off():
  _, survey, states, _, tallies = small("successor")
  k = int(np.argmax([own.count for own in survey.contexts]))
  view, contexts = list(survey.views)[k], survey.contexts[k]
  tally = Tally()
  cases = certificate.enumerate_view(states, view, contexts, tally)
  next(cases), next(cases)
  assert tally.cases == 128 < contexts.count
  list(certificate.enumerate_view(states, view, contexts, tally, 2))
  assert dataclasses.asdict(tally) == dataclasses.asdict(tallies[k])


class Killed(BaseException):
  """What no code of ours catches."""


@pytest.mark.parametrize("how", ("killed", "asked to stop"))
def test_a_count_cut_off_and_run_again_is_the_same(how, tmp_path, monkeypatch):
  own, survey, states, _, tallies = small("successor")
  largest = int(np.argmax([own.count for own in survey.contexts]))
  before = sum(-(-c.count // 64) for c in survey.contexts[:largest])
  add, calls = Tally.add, []

  def add_some(tally, *arguments):
    calls.append(arguments)
    if len(calls) == before + 2:
      monkeypatch.setattr(certify, "SAVE_SECONDS", -1)
    if len(calls) == before + 3:  # in the middle of a view
      monkeypatch.setattr(certify, "SAVE_SECONDS", 99)
      if how == "killed":
        raise Killed
      os.kill(os.getpid(), signal.SIGTERM)
    add(tally, *arguments)

  monkeypatch.setattr(Tally, "add", add_some)
  arguments = True, own, survey, states, tmp_path
  with pytest.raises((Killed, Interrupted)) as caught:
    certify._count(*arguments)
  assert (caught.type is Killed) == (how == "killed")
  done = json.loads((tmp_path / certify.PARTIAL).read_text())
  assert done["chunks"] == 2 + (how != "killed")
  again = certify._count(*arguments)
  assert list(map(dataclasses.asdict, again)) == list(
    map(dataclasses.asdict, tallies)
  )
  # Nothing was counted twice.
  chunks = sum(-(-c.count // 64) for c in survey.contexts)
  assert len(calls) == chunks + (how == "killed")
  # Another model starts anew.
  params = jax.tree.map(lambda x: x + 1, own.params)
  other = dataclasses.replace(own, params=params)
  calls[:] = [None] * chunks
  certify._count(True, other, *arguments[2:])
  assert len(calls) == 2 * chunks


def test_a_count_may_end_where_the_narrowest_fail(tmp_path):
  own, survey, states, dense, tallies = small("successor")
  found = certify._count(False, own, survey, states, tmp_path)
  assert 0 < len(found) < len(tallies)
  assert not any(tally.wrong for tally in found[:-1])
  assert 0 < found[-1].wrong <= tallies[len(found) - 1].wrong
  first = survey.first_views(len(found))
  told = verdict.counterexamples(first, found, dense, own)
  all_told = verdict.counterexamples(survey, tallies, dense, own)
  assert told and len(told[0]) == len(all_told[0])


def test_a_certificate_is_kept_if_it_says_all_that_is_asked():
  own, *_ = small("successor")
  section = lambda exhaustive: types.SimpleNamespace(exhaustive=exhaustive)
  same = {"checksum": certificate.checksum(own), "views": [1]}
  kept = lambda how, **about: certify._kept(same | about, section(how), own)
  assert kept(True, complete=True) and kept(False, complete=True)
  assert kept(False, complete=False) and not kept(True, complete=False)
  assert not kept(False, complete=False, views=[])  # it was not tried
  assert not kept(True, complete=True, checksum="of others")
  # Of these parameters, but with other lines.
  lines = own.scaffold["self"]
  lines = lines._replace(value=np.asarray(lines.value) - 1)
  other = dataclasses.replace(own, scaffold=own.scaffold | {"self": lines})
  assert not certify._kept(same | {"complete": True}, section(True), other)


# Verdicts.


def verdict_of(width=None, exact=float("inf"), **found) -> dict:
  usual = {"cases": 12345, "wrong": 0, "margin": 2.0, "rounding": 1e-3}
  found = usual | {"counterexamples": [], "complete": True} | found
  return verdict.decide(types.SimpleNamespace(fixed_width=width), found, exact)


@pytest.mark.parametrize(
  ("found", "value", "words"),
  [
    ({}, 1, ("right for every length: 12,345 cases", "margin 2", "0.001")),
    ({"width": 61}, 1, ("right for operands of up to 60 places",)),
    ({"margin": 1e-2, "exact": 1e-2}, 1, ("right for every length",)),
    ({"margin": 9e-3}, None, ("undecided", "known to fail", "0.009")),
    ({"exact": 9e-3}, None, ("undecided",)),
    ({"exact": -np.inf}, None, ("undecided",)),
    (
      {"wrong": 1234, "margin": -3.0, "counterexamples": list("1234")},
      0,
      ("wrong on 1,234 of 12,345 cases", "shortest: 1, 2, 3;", "margin -3"),
    ),
    ({"rounding": float("nan")}, None, ("undecided", "nan")),
    ({"margin": float("nan")}, None, ("undecided",)),
    # Not more than rounding may be, unless an input shows it.
    ({"wrong": 1, "margin": -9e-3}, None, ("undecided", "known to fail")),
    ({"wrong": 1, "margin": -9e-3, "counterexamples": ["1"]}, 0, (": 1;",)),
    ({"wrong": 1, "margin": -1.0}, 0, ("none of them typed",)),
    (
      {"wrong": 1, "margin": -1.0, "complete": False},
      0,
      ("on 1 of the first 12,345 cases",),
    ),
  ],
)
def test_a_verdict_says_what_was_found(found, value, words):
  told = verdict_of(**found)
  assert told["value"] == value and "\n" not in told["verdict"]
  for word in words:
    assert word in told["verdict"]


def test_counterexamples_fail_and_are_no_longer_than_they_must_be():
  own, survey, _, dense, tallies = small("successor")
  found = verdict.counterexamples(survey, tallies, dense, own)
  assert found == sorted(found, key=lambda text: (len(text), text))
  assert len(found[0]) == 1
  for text in (found[0], found[-1]):
    width = len(text) + 2
    items = np.pad(own.experiment.task.parse(text)[0], [(0, 0), (0, 2)])
    batch, _ = dense(np.repeat(items[None], 32, 0), width)
    assert not own.hits(batch)[1].any()
  practice = verdict.inputs_to_train_on(survey, tallies, own.experiment, 0)
  assert practice == verdict.inputs_to_train_on(
    survey, tallies, own.experiment, 0
  )
  longest = own.experiment.train_length
  texts = practice["failing"] + practice["thin"]
  assert {len(text) for text in texts} == set(range(1, longest + 1))


def test_float64_says_the_same_more_exactly():
  own, survey, states, _, tallies = small("successor")
  k = int(np.argmax([contexts.count for contexts in survey.contexts]))
  view, cases = list(survey.views)[k], next(survey.contexts[k].chunks(64))
  told = states.logits(view, cases)
  with jax.enable_x64(True):
    built, params = certificate.in_float64(own.experiment, own.params)
    exact = States(built, params, survey.transducer, 64).logits(view, cases)
  assert told.dtype == np.float32 and exact.dtype == np.float64
  np.testing.assert_allclose(told, exact, rtol=0, atol=1e-4)
  assert (told != exact).any()
  assert jax.numpy.ones(1).dtype == np.float32
  # The smallest margins of all cases, if not too many are small.
  smallest = functools.partial(
    verdict.smallest_in_float64, survey, tallies, own
  )
  least = sorted(margin for tally in tallies for margin, _ in tally.thin)
  assert smallest(least[0]) == np.inf
  found = smallest(least[3])
  assert found != least[0] and abs(found - least[0]) < 1e-4
  assert smallest(np.inf) == -np.inf


def test_rounding_is_what_the_whole_model_says_otherwise(monkeypatch):
  own, survey, states, dense, tallies = small("successor")
  rows = sum(map(len, survey.views.values()))
  monkeypatch.setattr(certificate, "DENSE_ROWS", 20 * rows)
  most, compared = certificate.rounding(states, survey, dense, 0)
  assert most < 1e-5 and compared == 20 * rows
  most, compared = verdict.rounding_of_thinnest(survey, tallies, states, dense)
  assert most < 1e-5
  assert compared == sum(len(tally.thin) for tally in tallies)
  head = "logits_dense_successor"
  bias = own.params[head]["bias"].at[3].add(0.5)
  off = own.params | {head: own.params[head] | {"bias": bias}}
  other = States(own.experiment, off, survey.transducer, 64)
  for most, _ in (
    certificate.rounding(other, survey, dense, 0),
    verdict.rounding_of_thinnest(survey, tallies, other, dense),
  ):
    np.testing.assert_allclose(most, 0.5, atol=1e-4)
