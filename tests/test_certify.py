"""--mode=certify: what a certificate says, and when it is made again."""

import json

import pytest

from lengthgen_jax.errors import UsageError
from lengthgen_jax.pipelines import certify
from lengthgen_jax.pretrained import files
from lengthgen_jax.proofs import checker


def modular():
  """The config of a right model, none of whose lines is to be closed."""
  config = files.get_config("modular")
  config.prune.enabled = False
  config.certify.second_opinion = True
  return config


def certificate(folder) -> dict:
  """The certificate of a workdir's one seed."""
  (result,) = json.loads((folder / "certificate.json").read_text()).values()
  return result


def test_a_right_model_is_proved_once(tmp_path, monkeypatch):
  config = modular()
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
  # It stands until something else is asked.
  monkeypatch.setattr(certify, "certify_model", None)
  certify.run(config, tmp_path)
  assert certificate(tmp_path)["margin"] == result["margin"]
  config.prune.enabled = True
  with pytest.raises(TypeError):
    certify.run(config, tmp_path)


def test_what_cannot_be_proved_is_said_in_a_line(tmp_path, capsys):
  certify.run(files.get_config("sort"), tmp_path)
  result = certificate(tmp_path)
  assert result["outcome"] is None
  assert "not proved: sort is no transducer" in capsys.readouterr().out
  config = modular()
  config.certify.max_contexts = 10
  certify.run(config, tmp_path)
  line = "not proved: there are more than 10 contexts"
  assert line in capsys.readouterr().out


def test_a_disagreement_stops_everything(tmp_path, monkeypatch):
  """The checker finds a margin that the program does not have."""
  prove = checker.prove
  larger = lambda *args: prove(*args) | {"margin": 100.0}
  monkeypatch.setattr(checker, "prove", larger)
  with pytest.raises(UsageError, match="the program disagree"):
    certify.run(modular(), tmp_path)
