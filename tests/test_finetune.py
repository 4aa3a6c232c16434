"""Finetuning: training on what a certificate found wrong, or undecided."""

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest
import untrained
from plain_lines import random_lines

from lengthgen_jax import sections
from lengthgen_jax.attention.lines import LEFT, WHOLE, Line, shared_lines
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import finetune, runs, workdir
from lengthgen_jax.tasks import dataset
from lengthgen_jax.training import loop
from lengthgen_jax.training.loop import TrainSpec, draw_batch


def examples(batch) -> list[tuple]:
  """All tokens of every example of a batch."""
  arrays = [batch.inputs, batch.target, batch.source]
  tokens = [np.asarray(x) for x in arrays if x is not None]
  return list(map(tuple, np.concatenate(tokens, axis=1).tolist()))


# A task, the family, fields and inputs.
FOUR = {"data.train_length": 4}
SETS = [
  ("addition", "encoder_decoder", {}, ["99+99", "12+2", "55+45"]),
  ("modular", "decoder_only", FOUR, ["6 6 1", "3", "5 4 0 2"]),
]


@pytest.mark.parametrize(("task", "kind", "fields", "texts"), SETS)
def test_a_share_of_a_batch_is_drawn_from_the_set(task, kind, fields, texts):
  experiment = untrained.experiment(task, kind, fields)
  train = sections.Train(**untrained.config(task, kind).train)
  ((share,), *_), count = experiment.step_specs, 9  # of 32
  of_seed = [(1, text) for text in texts]
  mixture = (*of_seed, *((2, text) for text in texts[:2]))

  @functools.partial(jax.jit, static_argnums=2)
  def batch_of(seed, step, counterexamples=()):
    """What a step trains on."""
    data = dataclasses.replace(
      experiment.data[0], counterexamples=counterexamples, share=0.3
    )
    spec = TrainSpec(dataclasses.replace(experiment, data=(data,)), train)
    return draw_batch(spec, share.head, share.parts[0], seed, step)[0]

  if task == "addition":  # rounds of width 3 have no room for these inputs
    narrow = examples(batch_of(1, 0, mixture))
    assert narrow == examples(batch_of(1, 0))
  parsed = [experiment.task.parse(text) for text in texts]
  for step in (1, 3):
    fresh = batch_of(1, step)
    mixed = batch_of(1, step, mixture)
    typed = dataset.parsed_batch(experiment.task, kind, parsed, 4, 4)
    tokens, wanted = examples(mixed), examples(typed)
    assert set(tokens[:count]) == set(wanted) and len(set(wanted)) == 3
    # All arrays, of an entry for each example or one for all, are the typed
    # inputs' and, from `count` on, those of fresh examples.
    order = np.array([wanted.index(example) for example in tokens[:count]])

    def join(x, y, order=order):
      x, y = np.asarray(x), np.asarray(y)
      return np.concatenate([x[order], y[count:]]) if len(y) == 32 else y

    expected = jax.tree.map(join, typed, fresh)
    jax.tree.map(np.testing.assert_array_equal, mixed, expected)
    # A function of seed and step, and each seed has its own.
    assert examples(batch_of(1, step, mixture)) == tokens
    assert examples(batch_of(1, step + 2, mixture))[:count] != tokens[:count]
    others = examples(batch_of(2, step, mixture))
    assert set(others[:count]) == set(wanted[:2])
    assert examples(batch_of(3, step, mixture)) == examples(batch_of(3, step))


def vanilla_run(folder, seeds, scaffold) -> loop.Run:
  """The training before the first round."""
  fields = {"train.optimizer": "muon", "train.learning_rate": 0.02}
  config = untrained.config(fields=fields | {"train.adam_learning_rate": 0.004})
  run = runs.make_run(config, folder)
  return dataclasses.replace(run, seeds=seeds, scaffold=scaffold)


@pytest.mark.parametrize("number", [1, 3])
def test_a_round_trains_its_seeds_on_their_inputs(number, tmp_path):
  inputs = {
    "7": {"failing": ["12+34"], "thin": ["1+1", "2+2", "3+30"]},
    "3": {"failing": ["5+6", "7+8"], "thin": ["9+9"]},
  }
  folder = tmp_path / f"finetune_{number}"
  folder.mkdir()
  (folder / runs.TRAINING_INPUTS).write_text(json.dumps(inputs))
  of_each_seed = random_lines(0, (3, 2, 2, 2), 1, (0, 1))
  of_all_seeds = shared_lines([Line(WHOLE, LEFT, 1, 0)], 2)
  scaffold = {"cross": of_each_seed, "self": of_all_seeds}
  run = vanilla_run(tmp_path / "retrain", (3, 5, 7), scaffold)
  section = untrained.config().finetune
  section.update(steps=7, share=0.5, learning_rate=0.01, rate_decay=0.5)
  finetuning = runs.finetuning_run(section, run, folder)
  assert finetuning.seeds == (7, 3) and finetuning.folder == folder
  for name, values in finetuning.scaffold["cross"]._asdict().items():
    np.testing.assert_array_equal(values, getattr(of_each_seed, name)[[2, 0]])
  assert finetuning.scaffold["self"].shape == (1, 1, 2)
  data = finetuning.experiment.data[0]
  assert data.counterexamples == (
    *((7, text) for text in (*["12+34"] * 3, "1+1", "2+2", "3+30")),
    *((3, text) for text in ("5+6", "7+8", "9+9")),
  )
  train = finetuning.train
  assert (train.steps, data.share) == (7, 0.5)
  assert train.warmup_steps == 7
  assert train.target_exact_match > 1  # trains to the end
  rates = train.learning_rate, train.adam_learning_rate
  np.testing.assert_allclose(rates, np.array([0.01, 0.002]) / 2 ** (number - 1))


def test_what_failed_before_is_trained_on_again(tmp_path, monkeypatch):
  """In rounds of which the second finds seed 1 undecided, the third right."""
  experiment = untrained.experiment()
  models = [Model(experiment, {}, {}, seed) for seed in (0, 1)]
  config, run = untrained.config(), vanilla_run(tmp_path, (0, 1), {})
  config.finetune.rounds = 3
  stage = workdir.Stage("train", config, run, 2, models)

  def found_of(outcome, failing=(), thin=()):
    inputs = {"failing": [*failing], "thin": [*thin]}
    return {"outcome": outcome, "training_inputs": inputs}

  seeds, right = [], found_of(1)
  rounds = [
    {"0": found_of(0, ["1+1"]), "1": found_of(0, ["2+2"])},
    {"0": found_of(0, ["3+3"]), "1": found_of(None, thin=["4+4"])},
    {"0": found_of(0, ["5+5"]), "1": right},
    {"0": right, "1": right},
  ]
  monkeypatch.setattr(workdir, "load_trained", lambda *_: stage)
  monkeypatch.setattr(workdir, "after_round", lambda stage, run: stage)
  monkeypatch.setattr(runs, "finetuning_run", lambda section, run, folder: run)
  monkeypatch.setattr(finetune.certify, "certify", lambda *_: rounds.pop(0))
  train = lambda run, params: seeds.append(len(params))
  monkeypatch.setattr(loop, "train", train)
  finetune.certify_and_finetune(config, tmp_path)
  paths = sorted(tmp_path.glob("finetune_*/*"))
  first, second, third = (json.loads(path.read_text()) for path in paths)
  assert first["0"]["failing"] == ["1+1"]
  assert second["0"]["failing"] == ["3+3", "1+1"]
  assert second["1"] == {"failing": ["2+2"], "thin": ["4+4"]}
  assert third.keys() == {"0"}
  assert len(seeds) == 3 and not rounds
