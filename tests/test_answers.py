"""Answers to what people type, within the memory there is."""

import pytest
import untrained

from lengthgen_jax.evaluation import trained
from lengthgen_jax.evaluation.trained import Model

SCORES = 3 * 4 * 2 * (64 + 64) ** 2  # bytes of one prompt in room for 64 items


@pytest.fixture(scope="module")
def model():
  """A decoder-only model that sorts, badly."""
  experiment = untrained.experiment("sort", "decoder_only")
  return Model(experiment, {}, untrained.params(experiment))


@pytest.fixture
def sizes(monkeypatch):
  """How many texts each pass of decoding had."""
  found = []
  greedy = Model.greedy

  def record(model, batch, stop):
    found.append(len(batch.inputs))
    return greedy(model, batch, stop)

  monkeypatch.setattr(Model, "greedy", record)
  return found


def test_as_many_as_fit_are_answered_together(model, sizes, monkeypatch):
  texts = ["5 3 1 3", "1 2 4 4", "2 1 1 1", "5 5 5 1"]
  monkeypatch.setattr(trained, "ANSWER_BATCH", 2)
  whole = model.answers(texts)
  assert sizes == [2, 2]
  monkeypatch.setattr(trained, "ANSWER_BATCH", 64)
  monkeypatch.setattr(
    trained, "ANSWER_BYTES", 3 * SCORES
  )  # a power of two of them
  sizes.clear()
  assert model.answers(texts) == whole
  assert sizes == [2, 2]


def test_what_is_beyond_memory_is_refused_alone(model, sizes, monkeypatch):
  monkeypatch.setattr(trained, "ANSWER_BYTES", 3 * SCORES)
  long = " ".join(["1"] * 65)
  first, second, third = model.answers(["5 3 1 3", long, "2 4 1 1"])
  assert second.startswith("error: 65 items are too many")
  assert len(second) < 120
  assert [first, third] == model.answers(["5 3 1 3", "2 4 1 1"])
  assert sizes == [2, 2]
