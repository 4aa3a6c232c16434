"""--mode=certify: what a certificate says, and when it is made again."""

import dataclasses
import json

import jax
import pytest

import lengthgen_jax
from lengthgen_jax.errors import UsageError
from lengthgen_jax.pipelines import certify, workdir
from lengthgen_jax.pretrained import files
from lengthgen_jax.proofs import checker


def with_model(monkeypatch, change):
  """Changes the model of every workdir before it is certified."""
  load = workdir.load_trained

  def changed(*arguments):
    stage = load(*arguments)
    return stage._replace(models=list(map(change, stage.models)))

  monkeypatch.setattr(workdir, "load_trained", changed)


def certificate(folder) -> dict:
  """The certificate of seed 0's workdir, whichever seed it has."""
  (result,) = json.loads((folder / "certificate.json").read_text()).values()
  return result


def test_a_right_model_is_proved_once(tmp_path, capsys, monkeypatch):
  config = files.get_config("modular")
  config.certify.second_opinion = True
  certify.run(config, tmp_path)
  result = certificate(tmp_path)
  assert result["outcome"] == 1 and result["margin"] > 5
  assert result["verdict"].startswith("right for every length: ")
  opinion = result["second_opinion"]
  assert opinion["contexts"] == result["contexts"] and opinion["wrong"] == 0
  assert abs(opinion["margin"] - result["margin"]) <= result["rounding"]
  row = json.loads((tmp_path / "results.jsonl").read_text())
  assert (row["metric"], row["value"]) == ("certified", 1)
  assert row["n"] == result["contexts"] > 0
  assert "closed" in capsys.readouterr().err  # of the lines that it has
  # It stands until something else is asked.
  monkeypatch.setattr(certify, "certify_model", None)
  certify.run(config, tmp_path)
  assert certificate(tmp_path)["margin"] == result["margin"]
  config.prune.enabled = False
  with pytest.raises(TypeError):
    certify.run(config, tmp_path)


def test_a_wrong_model_has_its_shortest_inputs(tmp_path, monkeypatch, capsys):
  """Without its bias the output head says other sums."""
  shift = lambda x: -x

  def broken(model):
    head = "logits_dense_modular"
    params = model.params | {head: jax.tree.map(shift, model.params[head])}
    return dataclasses.replace(model, params=params)

  with_model(monkeypatch, broken)
  config = files.get_config("modular")
  certify.run(config, tmp_path)
  result = certificate(tmp_path)
  assert result["outcome"] == 0 and result["margin"] < 0
  shortest = result["counterexamples"][0]
  assert f"the shortest: {shortest}" in result["verdict"]
  assert result["pruning"]["closed"] == []
  right = sum(map(int, shortest.split())) % 7
  assert lengthgen_jax.load("modular").predict(shortest) != str(right)
  assert "wrong with all lines" in capsys.readouterr().err


def test_what_cannot_be_proved_is_said_in_a_line(tmp_path, capsys):
  certify.run(files.get_config("sort"), tmp_path)
  result = certificate(tmp_path)
  assert result["outcome"] is None
  assert "not proved: sort is no transducer" in capsys.readouterr().out
  config = files.get_config("modular")
  config.certify.max_contexts = 10
  certify.run(config, tmp_path)
  line = "not proved: there are more than 10 contexts"
  assert line in capsys.readouterr().out


def test_a_disagreement_stops_everything(tmp_path, monkeypatch):
  """The checker finds a margin that the program does not have."""
  prove = checker.prove
  larger = lambda *args: prove(*args) | {"margin": 100.0}
  monkeypatch.setattr(checker, "prove", larger)
  config = files.get_config("modular")
  config.certify.second_opinion = True
  with pytest.raises(UsageError, match="the program disagree"):
    certify.run(config, tmp_path)
