"""What is measured of trained models on test sets, and what they answer."""

import dataclasses
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained
from pytrees import leaf_bytes, one
from tiny import get_config

from lengthgen_jax.config.build import build
from lengthgen_jax.evaluation import measures, trained
from lengthgen_jax.evaluation.trained import EvalSpec, Model
from lengthgen_jax.models.centering import centered
from lengthgen_jax.pipelines import evaluate, workdir
from lengthgen_jax.results import records

# As many samples as the command that trained it tested: nothing to compile.
SPEC = EvalSpec("equal", "equal", (), 2, 64, memory_mb=64)


@pytest.fixture
def model(trained_models):
  """A seed that is half trained."""
  return trained_models[0]


def rows_by_metric(model, spec) -> dict:
  """Rows of all measures, by metric."""
  rows = measures.test_rows(model, spec, free_running=True)
  assert len({row["metric"] for row in rows}) == len(rows)
  return {row["metric"]: row for row in rows}


def test_decoding_stops_at_the_end_token(model):
  """With a cache of few keys, and with one of all."""
  (batch, _), *_ = model.batches(SPEC)
  for one_model in (model, dataclasses.replace(model, scaffold={})):
    whole = one_model.greedy(batch, stop=None)
    end = int(whole[0, 1])  # any token that is said before the last
    behind = np.cumsum(whole == end, axis=1) - (whole == end) > 0
    expected = np.where(behind, model.experiment.task.pad, whole)
    assert np.array_equal(one_model.greedy(batch, stop=end), expected)
    assert not np.array_equal(whole, expected)


def test_measures_agree_with_decoded_outputs(model):
  rows = rows_by_metric(model, SPEC)
  counts = {name: row["n"] for name, row in rows.items()}
  assert counts == dict.fromkeys(("em", "em_end_blind", "edit"), 64)
  assert 64 > rows["em_end_blind"]["correct"] >= rows["em"]["correct"] > 0

  (batch, _), *_ = model.batches(SPEC)
  decode = model.experiment.task.decode
  before_end = lambda ids: list(decode(ids[:5]).partition("&")[0])
  outputs = model.greedy(batch, stop=None)
  edits = sum(
    measures.edit_distance(before_end(output), before_end(target))
    for output, target in zip(outputs, np.asarray(batch.target), strict=True)
  )
  assert 0 < rows["edit"]["value"] == edits / (64 * 4)


def test_end_blind_forgives_the_end_and_leading_zeros_only():
  """The least significant digit is first."""
  end, target = 13, [3, 2, 1, 0, 13]
  right = [target, [3, 2, 1, 0, 0], [3, 2, 1, 13, 13], [3, 13, 2, 1, 0]]
  outputs = np.array([*right, [0, 3, 2, 1, 13], [3, 2, 1, 14, 13]])
  targets = np.array([target] * len(outputs))
  *_, row = measures.free_running_rows(outputs, targets, end)
  assert (row["metric"], row["correct"]) == ("em_end_blind", len(right))


def test_memory_does_not_change_rows(model):
  large = SPEC._replace(length=20)
  small = large._replace(memory_mb=1)
  counts = [count for _, count in model.batches(small)]
  assert sum(counts) == 64 and len(counts) > 2
  assert counts[-1] < counts[0]  # the last one is filled up
  assert [count for _, count in model.batches(large)] == [64]
  assert measures.test_rows(model, small) == measures.test_rows(model, large)


def test_lengths_up_to_62_share_one_compile(model):
  measures.test_rows(model, SPEC)
  programs = trained._matches._cache_size()
  for length in (1, 3, 20, 62):
    measures.test_rows(model, SPEC._replace(length=length))
  assert trained._matches._cache_size() == programs
  draw = lambda n: model.experiment.test_batch("equal", 0, [0], n, {})
  assert [draw(n).inputs.shape for n in (62, 63)] == [(1, 65), (1, 129)]


def test_lengths_left_out_take_their_samples_along():
  """The vanilla model of a pipeline is not tested at the longest inputs."""
  config = get_config()
  config.eval.update(lengths=(60, 6, 20), samples=(5, 6, 7))
  model = Model(build(config), {}, {})
  samples = {(): {60: 5, 6: 6, 20: 7}, (20,): {6: 6, 20: 7}, (5,): {}}
  for longest, expected in samples.items():
    specs = evaluate.eval_specs(config, model, *longest)
    assert {spec.length: spec.samples for spec in specs} == expected


def test_best_is_each_seeds_own_step(trained_run, trained_states, tmp_path):
  zeros = jax.tree.map(jnp.zeros_like, trained_states.best_params)
  steps = jnp.array([50, 350])
  states = trained_states.replace(best_step=steps, best_params=zeros)
  config, em_rows = get_config(), {}
  for checkpoint in ("last", "best"):
    config.eval.checkpoint = checkpoint
    models = trained.models(trained_run, states, checkpoint)
    stage = workdir.Stage("train", config, None, 3, models)
    rows = evaluate.evaluate(stage, tmp_path)
    assert {row["checkpoint"] for row in rows} == {checkpoint}
    assert {row["seeds_asked"] for row in rows} == {3}
    exact = [row for row in rows if row["metric"] == "em"]
    em_rows[checkpoint] = {row["seed"]: row for row in exact}
    for r, model in enumerate(models):
      params = states.best_params if checkpoint == "best" else states.params
      expected = centered(model.experiment.model.config, one(params, r))
      assert leaf_bytes(model.params) == leaf_bytes(expected)
  step = lambda name: {seed: row["step"] for seed, row in em_rows[name].items()}
  assert step("last") == {0: 600, 1: 600}
  assert step("best") == {0: 50, 1: 350}
  assert all(row["correct"] == 0 for row in em_rows["best"].values())
  rows = records.read_results(tmp_path / "results.jsonl")
  assert len(rows) == 2 * 2  # neither evaluation replaced the other


# Answers to people.

SCORES = 3 * 4 * 2 * (64 + 64) ** 2  # bytes of one prompt in room for 64 items


@pytest.fixture(scope="module")
def sorter():
  """A decoder-only model that sorts, badly."""
  experiment = untrained.experiment("sort", "decoder_only")
  return Model(experiment, {}, untrained.params(experiment))


# Three fit; their number is a power of two.
@pytest.mark.parametrize(
  "limit", [("MAX_ANSWER_BATCH", 2), ("MAX_ANSWER_BYTES", 3 * SCORES)]
)
def test_as_many_as_fit_are_answered_together(limit, sorter, monkeypatch):
  texts = ["5 3 1 3", "1 2 4 4", "2 1 1 1", "5 5 5 1"]
  answers = sorter.answers(texts)
  monkeypatch.setattr(trained, *limit)
  spy = {"autospec": True, "side_effect": Model.greedy}
  with mock.patch.object(Model, "greedy", **spy) as greedy:
    assert sorter.answers(texts) == answers
  batches = [call.args[1] for call in greedy.call_args_list]
  assert [len(batch.inputs) for batch in batches] == [2, 2]


def test_what_is_beyond_memory_is_refused_alone(sorter, monkeypatch):
  monkeypatch.setattr(trained, "MAX_ANSWER_BYTES", 3 * SCORES)
  long = " ".join(["1"] * 65)
  first, second, third = sorter.answers(["5 3 1 3", long, "2 4 1 1"])
  assert second.startswith("error: 65 items are too many")
  assert len(second) < 120
  assert [first, third] == sorter.answers(["5 3 1 3", "2 4 1 1"])
