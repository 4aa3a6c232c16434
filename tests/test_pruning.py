"""Pruning: lines that a trained model does not need are closed."""

import copy
import dataclasses
import json

import numpy as np
import pytest
import untrained
from ml_collections import ConfigDict

import lengthgen_jax
from lengthgen_jax.attention.pruning import Entry
from lengthgen_jax.config import files
from lengthgen_jax.pipelines import certify, prune, workdir
from lengthgen_jax.proofs import checker

KEEP_RIGHT = ConfigDict({"enabled": True, "margin_share": 0.0})
KEEP_MARGIN = ConfigDict({"enabled": True, "margin_share": 0.9})
OFF = ConfigDict({"enabled": False, "margin_share": 0.9})


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
    "outcome": int(result["verdict"] == "proved"),
    "contexts": result["contexts"],
    "counterexamples": [],
    "step": model.step,
  }


@pytest.fixture
def certified(successor, monkeypatch):
  """Certifies a model by a function in the place of proof and search."""

  def new_certificate(section, model, certify_model) -> dict:
    config = copy.deepcopy(successor.config)
    config.prune.update(section)
    stand_in = lambda _, model: certify_model(model)
    monkeypatch.setattr(certify, "certify_model", stand_in)
    return certify.new_certificate(config, model)

  return new_certificate


def test_a_superfluous_line_is_closed(successor, certified, capsys):
  model, entry = planted(successor.model)
  small, large = (proof(successor, x) for x in (successor.model, model))
  assert large["contexts"] > 5 * small["contexts"]
  pruned = certified(KEEP_MARGIN, model, lambda model: proof(successor, model))
  assert pruned["outcome"] == 1 and pruned["contexts"] == small["contexts"]
  record = pruned["pruning"]
  equation = "a: right-1·row = 1"
  assert record["closed"] == [[*entry, equation]]
  before, after = record["margins"]
  assert after >= 0.9 * before > 0
  lines = f"closed 1 of {record['lines']} lines that nothing needs"
  assert f"seed {model.seed}: {lines}\n" in capsys.readouterr().err
  # The certificate is enough to prune the model again.
  again = prune.without_closed(KEEP_MARGIN, model, pruned)
  valid = again.scaffold["cross"].valid
  original = successor.model.scaffold["cross"].valid
  np.testing.assert_array_equal(valid[..., :-1], original)
  assert not valid[..., -1].any()
  # And both give the same answers.
  texts = ["0", "9", "899", "12399999", "9" * 20, "109"]
  assert again.answers(texts) == model.answers(texts)
  for other in (pruned | {"step": model.step + 1}, {}):
    assert prune.without_closed(KEEP_MARGIN, model, other) is model
  assert prune.without_closed(OFF, model, pruned) is model
  # A first stage that ended at the same step has no lines.
  vanilla = dataclasses.replace(model, scaffold={})
  assert prune.without_closed(KEEP_MARGIN, vanilla, pruned) is vanilla
  kept = certified(OFF, model, lambda model: {"of": model})
  assert kept == {"of": model}


def wrong_inputs(model) -> list[str]:
  """The numbers below a thousand to which a model does not add one."""
  texts = [f"{n:03}" for n in range(1000)]
  batch = untrained.typed(model.experiment, *texts, width=5)
  is_right = model.matches(batch)
  return [x for x, right in zip(texts, is_right, strict=True) if not right]


def test_what_is_needed_opens_again(successor, certified, monkeypatch, capsys):
  """With held-out examples that never carry, the lines of the carry are closed
  at first."""
  model, entry = planted(successor.model)
  one = lambda *_: prune._typed(successor.model, ["120"])
  monkeypatch.setattr(prune, "_held_out", one)
  closed, _ = prune.prune(KEEP_RIGHT, model, [], keep_all=False)
  assert entry in closed
  assert wrong_inputs(prune.without(model, closed))
  certify_below_1000 = lambda model: {
    "counterexamples": wrong_inputs(model),
    "outcome": int(not wrong_inputs(model)),
    "contexts": 7,
    "step": model.step,
  }
  result = certified(KEEP_RIGHT, model, certify_below_1000)
  assert result["outcome"] == 1
  still_closed = [Entry(*x[:4]) for x in result["pruning"]["closed"]]
  assert entry in still_closed and len(still_closed) < len(closed)
  assert "that this needs are open again" in capsys.readouterr().err


@pytest.mark.parametrize("task", ("addition", "multiply_long", "modular"))
def test_any_model_that_can_be_certified_has_paths(task):
  kind = "decoder_only" if task == "modular" else "encoder_decoder"
  fields = {"bias.kind": "window", "positions.kind": "none"}
  fields |= {"model.num_encoder_layers": 0, "model.num_decoder_layers": 2}
  paths = prune.paths(untrained.model(task, kind, fields))
  is_open = np.ones(len(paths.entries), bool)
  savings = list(paths.savings(is_open))
  assert savings and savings[0][0] < paths.log_contexts(is_open)
  # Closing everything leaves the row's own input.
  assert paths.log_contexts(~is_open) < savings[0][0]


# In a workdir.


def test_all_modes_read_the_lines_that_are_left(copied):
  load = lambda: [lengthgen_jax.load(copied, seed).model for seed in (0, 1)]
  whole = load()
  line = ["self", 0, 1, 0, "whole: left-1·row = 0"]
  record = {"closed": [line], "margin_share": 0.9}
  checksum = prune.without(whole[1], [Entry(*line[:4])]).checksum
  certificate = {"step": whole[1].step, "pruning": record, "outcome": None}
  path = copied / "certificate.json"
  path.write_text(json.dumps({"1": certificate | {"checksum": checksum}}))
  pruned = load()
  valid = lambda models, seed: np.asarray(models[seed].scaffold["self"].valid)
  assert (valid(pruned, 0) == valid(whole, 0)).all()
  closed = np.argwhere(valid(pruned, 1) != valid(whole, 1))
  assert closed.tolist() == [[0, 1, 0]]
  config = files.saved_config(copied)
  config.prune.enabled = False
  models = workdir.load_stage(config, copied).models
  assert (valid(models, 1) == valid(whole, 1)).all()
