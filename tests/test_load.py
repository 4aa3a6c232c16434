"""lengthgen_jax.load: a trained workdir from Python."""

import numpy as np
import pytest
import untrained

import lengthgen_jax
from lengthgen_jax.errors import UsageError
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.results import records


def test_model_that_is_loaded_measures_as_the_command_did(
  trained, trained_models
):
  rows = records.read(trained / "results.jsonl")
  exact = {row["seed"]: row for row in rows if row["metric"] == "em"}
  assert set(exact) == {0, 1}
  for seed, row in exact.items():
    model = lengthgen_jax.load(trained, seed=seed)
    assert model.seed == seed
    assert row["value"] == model.exact_match(
      row["length"], row["n"], row["test_set"]
    )
  best = max(trained_models, key=lambda model: model.em)
  assert lengthgen_jax.load(trained).seed == best.seed
  assert model.exact_match(2, 64, "unequal") != model.exact_match(2, 64)


def test_attention_of_a_loaded_model_is_causal_and_sums_to_one(trained):
  model = lengthgen_jax.load(trained)
  assert set(model.lines) == {"self", "cross"}
  batch, layers = model.attention("12+34")
  assert len(layers) == 1
  (rows,) = batch.target.shape[1:]
  for site, keys in (("self", rows), ("cross", batch.source.shape[1])):
    weights = layers[0][site]
    assert weights.shape == (2, rows, keys)
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
  later = np.triu(np.ones((rows, rows), bool), 1)
  assert not layers[0]["self"][:, later].any()


def test_loading_what_does_not_exist_is_refused(trained, tmp_path):
  with pytest.raises(UsageError, match="nothing was trained there"):
    lengthgen_jax.load(tmp_path)
  with pytest.raises(UsageError, match=r"seeds \(0, 1\), none of 7"):
    lengthgen_jax.load(trained, seed=7)
  with pytest.raises(ValueError, match="takes digits"):
    lengthgen_jax.load(trained).attention("what")


def test_a_text_that_does_not_fit_is_refused():
  fixed = {"data.width": "fixed", "data.fixed_width": 8}
  experiment = untrained.experiment(fields=fixed)
  model = Model(experiment, {}, untrained.params(experiment))
  assert model.typed("1234567+1").source.shape[1] > 8
  with pytest.raises(UsageError, match="at most 7"):
    model.attention("12345678+1")
