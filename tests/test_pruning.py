"""Pruning: lines that a trained model does not need are closed."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
import untrained
from ml_collections import ConfigDict
from plain_lines import on_line, one_seed, places, random_lines, tokens

import lengthgen_jax
from lengthgen_jax.attention import pruning
from lengthgen_jax.attention.lines import LEFT, WHOLE, Line, shared_lines
from lengthgen_jax.attention.pruning import Entry, Paths
from lengthgen_jax.config import files
from lengthgen_jax.pipelines import certify, prune, workdir
from lengthgen_jax.proofs import checker
from lengthgen_jax.tasks import dataset

KEEP_RIGHT = ConfigDict({"enabled": True, "margin_share": 0.0})
KEEP_MARGIN = ConfigDict({"enabled": True, "margin_share": 0.9})
DEPTHS = {"self": 2, "cross": 2, "encoder": 0}


# The pure part.


def test_the_cells_of_lines_are_those_of_attention():
  """The cells of Paths are computed again, without JAX."""
  rows = places(tokens((2, 5)))
  keys = places(tokens((0, 3), (1, 4), (2, 2)))
  lines = one_seed(random_lines(0, (1, 1, 1, 200), 1, (0, 1, 2, WHOLE), (0, 1)))
  opened = 0
  for k in range(200):
    line = lines.lines.take((0, 0, k))
    cells = pruning._cells(line, rows, keys)
    for t, s in np.ndindex(cells.shape):
      assert cells[t, s] == on_line(line, rows, keys, 0, t, s)
    opened += cells.sum()
  assert opened > 100


def paths_of(self_lines, cross_lines) -> Paths:
  """The Paths of 9 rows of a tape and of 9 digits, in two layers of one head
  that share these lines."""
  rows = places(tokens((1, 9)))
  keys = places([(2, (0,), (0,)), *tokens((1, 9))[:-1]])
  source = places(tokens((0, 9)))
  scaffold = {
    "self": one_seed(shared_lines(self_lines, 1)),
    "cross": one_seed(shared_lines(cross_lines, 1)),
  }
  coordinates = {"self": (rows, keys), "cross": (rows, source)}
  varies = np.ones(18, bool)
  varies[0] = False  # the start token
  return Paths(scaffold, DEPTHS, coordinates, np.arange(9), varies, 10)


def test_contexts_are_estimated_from_all_paths():
  own, before = Line(0, LEFT, 1, 0), Line(1, LEFT, 1, -2)
  paths = paths_of([before], [own])
  everything = np.ones(4, bool)
  # Row i sees the states of rows i and i - 1, which have seen digits i and
  # i - 1 and inputs i to i - 2. Input 0 is the start token, without a line.
  counts = [1, 2, 4, *[5] * 6]
  expected = np.logaddexp.reduce(np.array(counts) * np.log(10))
  assert np.isclose(paths.log_contexts(everything), expected)
  # Without self-attention: the own input and the own digit.
  without = np.array([e.site == "cross" for e in paths.entries])
  expected = np.logaddexp.reduce(np.array([1, *[2] * 8]) * np.log(10))
  assert np.isclose(paths.log_contexts(without), expected)


def test_lines_are_closed_largest_saving_first_and_needed_ones_stay():
  own, chance, far = (Line(0, LEFT, 1, c) for c in (0, 1, -3))
  paths = paths_of([Line(1, LEFT, 1, -1)], [own, chance, far])
  needed = {e for e in paths.entries if e.site == "cross" and e.index == 0}
  tried = []

  def is_as_good(closed):
    tried.append(closed)
    return not needed & set(closed)

  closed = pruning.prune(paths, is_as_good)
  # Those to the row's own input save nothing, and stay.
  assert {(e.site, e.index) for e in closed} == {("cross", 1), ("cross", 2)}
  assert len(closed) == 4
  # No group is tried that holds a group which is known to be needed.
  refused = [set(x) for x in tried if needed & set(x)]
  for i, group in enumerate(refused):
    assert not any(earlier <= group for earlier in refused[:i])
  assert pruning.prune(paths, is_as_good) == closed
  assert pruning.prune(paths, lambda closed: False) == []


def test_a_line_is_closed_in_one_layer_of_those_that_share_it():
  scaffold = {"self": one_seed(shared_lines([Line(1, LEFT, 1, -1)], 2))}
  closed = pruning.close(scaffold, [Entry("self", 1, 0, 0)], DEPTHS)
  assert closed["self"].valid[:, :, 0].tolist() == [[True] * 2, [False, True]]
  assert scaffold["self"].valid.all() and len(scaffold["self"].valid) == 1
  assert len(pruning.entries(closed, DEPTHS)) == 3


# Trained models.


def planted(model, value=-8.0):
  """A model with one more line, to the next digit, in head 0 of the last
  layer, and its Entry."""
  lines = model.scaffold["cross"]
  layer, index = len(lines.valid) - 1, lines.valid.shape[-1]
  k = int(np.flatnonzero(np.asarray(lines.valid[layer, 0]))[0])
  grow = lambda x: np.concatenate([x, x[:, :, k : k + 1]], axis=2)
  fields = {
    name: grow(np.asarray(x)) if x.ndim > 2 else x
    for name, x in lines._asdict().items()
  }
  fields["valid"][..., index] = False
  fields["valid"][layer, 0, index] = True
  fields["intercept"][layer, 0, index] = 1
  fields["value"][layer, 0, index] = value
  scaffold = model.scaffold | {"cross": type(lines)(**fields)}
  entry = Entry("cross", layer, 0, index)
  return dataclasses.replace(model, scaffold=scaffold), entry


@pytest.fixture(scope="module")
def successor():
  """A shipped model that carries."""
  return lengthgen_jax.load("successor")


def proof(loaded, model) -> dict:
  """What checker.py says of a model, as a certificate."""
  result = checker.prove(*certify.exported(loaded.config, model))
  return {
    "value": int(result["verdict"] == "proved"),
    "contexts": result["contexts"],
    "counterexamples": [],
    "step": model.step,
  }


def test_a_superfluous_line_is_closed_and_the_proof_is_the_small_one(
  successor, capsys
):
  model, entry = planted(successor.model)
  small, large = (proof(successor, x) for x in (successor.model, model))
  assert large["contexts"] > 5 * small["contexts"]
  pruned = prune.certify_pruned(
    KEEP_MARGIN,
    model,
    lambda model: proof(successor, model),
    lambda model: certify.count_contexts(successor.config, model),
  )
  assert pruned["value"] == 1 and pruned["contexts"] == small["contexts"]
  record = pruned["pruning"]
  equation = "a: right-1·row = 1"
  assert record["closed"] == [[*entry, equation]]
  assert record["contexts"] == [f"{x['contexts']:,}" for x in (large, small)]
  before, after = record["margins"]
  assert after >= 0.9 * before > 0
  lines = f"closed 1 of {record['lines']} lines that nothing needs"
  cases = f"{large['contexts']:,} → {small['contexts']:,} contexts"
  assert f"seed {model.seed}: {lines}: {cases}" in capsys.readouterr().err
  # The certificate is enough to prune the model again.
  again = prune.without_closed(KEEP_MARGIN, model, pruned)
  jax.tree.map(
    np.testing.assert_array_equal,
    again.scaffold["cross"].valid[..., :-1],
    successor.model.scaffold["cross"].valid,
  )
  assert not again.scaffold["cross"].valid[..., -1].any()
  # And both give the same answers.
  texts = ["0", "9", "899", "12399999", "9" * 20, "109"]
  assert again.answers(texts) == model.answers(texts)
  for other in (pruned | {"step": model.step + 1}, {}):
    assert prune.without_closed(KEEP_MARGIN, model, other) is model
  off = ConfigDict({"enabled": False, "margin_share": 0.9})
  assert prune.without_closed(off, model, pruned) is model
  assert prune.is_pruned_as_asked(KEEP_MARGIN, pruned)
  assert not prune.is_pruned_as_asked(KEEP_RIGHT, pruned)
  assert not prune.is_pruned_as_asked(off, pruned)
  kept = prune.certify_pruned(off, model, lambda model: {"of": model}, str)
  assert kept == {"of": model}


def wrong_inputs(model) -> list[str]:
  """The numbers below a thousand to which a model does not add one."""
  task, texts = model.experiment.task, [f"{n:03}" for n in range(1000)]
  parsed = [task.parse(text) for text in texts]
  batch = dataset.parsed_batch(task, model.experiment.kind, parsed, 5, 5)
  is_right = np.asarray(model.matches(batch)[1])
  return [x for x, right in zip(texts, is_right, strict=True) if not right]


def test_what_a_certificate_finds_needed_is_open_again(
  successor, monkeypatch, capsys
):
  """With held-out examples that never carry, the lines of the carry are closed
  at first."""
  model, entry = planted(successor.model)
  one = lambda *_: prune._typed(successor.model, ["120"])
  monkeypatch.setattr(prune, "_held_out", one)
  closed, _ = prune._prune(KEEP_RIGHT, model, [], keep_all=False)
  assert entry in closed
  assert wrong_inputs(prune._without(model, closed))
  certify_below_1000 = lambda model: {
    "counterexamples": wrong_inputs(model),
    "value": int(not wrong_inputs(model)),
    "contexts": 7,
    "step": model.step,
  }
  result = prune.certify_pruned(KEEP_RIGHT, model, certify_below_1000, str)
  assert result["value"] == 1
  still_closed = [Entry(*x[:4]) for x in result["pruning"]["closed"]]
  assert entry in still_closed and len(still_closed) < len(closed)
  assert "that this needs are open again" in capsys.readouterr().err


def test_if_no_input_is_known_to_fail_all_lines_are_open_again(successor):
  model, _ = planted(successor.model)
  lines = lambda model: int(np.sum(model.scaffold["cross"].valid))
  fails = lambda pruned: {
    "counterexamples": [],
    "value": int(lines(pruned) == lines(model)),
    "contexts": 7,
    "step": model.step,
  }
  result = prune.certify_pruned(KEEP_MARGIN, model, fails, str)
  assert result["value"] == 1 and result["pruning"]["closed"] == []


def test_a_wrong_model_is_not_pruned(successor, capsys):
  model, _ = planted(successor.model)
  head = jax.tree.map(lambda x: -x, model.params["logits_dense_successor"])
  params = model.params | {"logits_dense_successor": head}
  model, certified = dataclasses.replace(model, params=params), []

  def fails(model):
    certified.append(len(pruning.entries(model.scaffold, DEPTHS)))
    return {"value": 0, "counterexamples": ["1"], "contexts": 7, "step": 0}

  result = prune.certify_pruned(KEEP_RIGHT, model, fails, str)
  assert result["pruning"]["closed"] == [] and result["value"] == 0
  assert certified == [result["pruning"]["lines"]]
  assert "wrong with all lines" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ("encoder_decoder", "decoder_only"))
@pytest.mark.parametrize("task", ("addition", "multiply_long", "modular"))
def test_any_model_that_can_be_certified_has_paths(task, kind):
  fields = {"bias.kind": "window", "positions.kind": "none"}
  fields |= {"model.num_encoder_layers": 0, "model.num_decoder_layers": 2}
  experiment = untrained.experiment(task, kind, fields)
  config = untrained.config(task, kind, fields)
  scaffold = workdir.lines.of_seed(
    prune.runs.build.make_scaffold(config, experiment), 0
  )
  model = prune.Model(experiment, scaffold, {})
  paths = prune.paths(model)
  is_open = np.ones(len(paths.entries), bool)
  savings = list(paths.savings(is_open))
  assert savings and savings[0][0] < paths.log_contexts(is_open)
  # Closing everything leaves the row's own input.
  assert paths.log_contexts(~is_open) < savings[0][0]


# In a workdir.


def test_all_modes_read_the_lines_that_are_left(trained, tmp_path):
  folder = tmp_path / "pruned"
  shutil.copytree(trained, folder)
  whole = {seed: lengthgen_jax.load(folder, seed).model for seed in (0, 1)}
  line = ["self", 0, 1, 0, "whole: left-1·row = 0"]
  record = {"closed": [line], "margin_share": 0.9}
  checksum = prune._without(whole[1], [Entry(*line[:4])]).checksum
  certificate = {"step": whole[1].step, "pruning": record}
  path = folder / "certificate.json"
  path.write_text(json.dumps({"1": certificate | {"checksum": checksum}}))
  pruned = {seed: lengthgen_jax.load(folder, seed).model for seed in (0, 1)}
  valid = lambda models, seed: np.asarray(models[seed].lines["self"].valid)
  assert (valid(pruned, 0) == valid(whole, 0)).all()
  assert np.argwhere(valid(pruned, 1) != valid(whole, 1)).tolist() == [
    [0, 1, 0]
  ]
  config = files.saved_config(folder)
  config.prune.enabled = False
  stage = workdir.load_stage(config, folder)
  assert (
    np.asarray(stage.models[1].lines["self"].valid) == valid(whole, 1)
  ).all()


def test_a_certificate_of_other_lines_is_made_again(
  trained, tmp_path, monkeypatch
):
  """With prune.enabled=False, it is of all lines."""
  folder = tmp_path / "certified"
  shutil.copytree(trained, folder)
  config, seen = files.saved_config(folder), []

  def certified(config, model):
    seen.append(int(np.sum(model.scaffold["self"].valid)))
    return {
      "value": 1,
      "verdict": "right",
      "contexts": 3,
      "complete": True,
      "margin": 1.0,
      "rounding": 0.0,
      "histogram": [],
      "checksum": model.checksum,
      "counterexamples": [],
      "step": model.step,
    }

  first = lambda *arguments, **options: (
    [Entry("self", 0, 0, 0)],
    (2.0, 2.0),
  )
  monkeypatch.setattr(prune, "_prune", first)
  monkeypatch.setattr(certify, "certify_model", certified)
  monkeypatch.setattr(certify, "refusal", lambda *_: "")
  monkeypatch.setattr(certify, "count_contexts", lambda *_: "5")
  run = lambda: certify.run(config, folder)
  run()
  run()
  assert len(seen) == 2  # one for each seed
  config.prune.enabled = False
  run()
  assert seen[2:] == [seen[0] + 1] * 2
  assert "pruning" not in workdir.read_certificates(folder)["0"]
  config.prune.enabled = True
  run()
  assert seen[4:] == seen[:2]
