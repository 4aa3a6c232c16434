"""One teacher-forced pass proves what decoding would say.

For every kind of task; families, positions, temperatures, normalizers, segments
and biases are taken in turn.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained

from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.config.build import build, make_scaffold
from lengthgen_jax.evaluation.trained import Model, scored
from lengthgen_jax.tasks import dataset

SAMPLES = 24


class Case(NamedTuple):
  task: str
  kind: str
  positions: str
  temperature: str
  norm: str
  bias: str  # nothing; lines alone; lines where some heads see everything
  normalizer: str
  segments: str


# Every kind of task; every choice of each other field at least once. Models
# without normalization compile in half the time.
CASES = [
  Case(*line.split())
  for line in """
mqmtar encoder_decoder none none pre none softmax none
increment decoder_only coupling log_items post window entmax segments
sort encoder_decoder learned log_visible block_end none sparsemax none
parity_classification decoder_only rope one_plus_log none transparent \
  stick_breaking segments
parity encoder_decoder alibi scalable pre window softmax none
multiply_long decoder_only nape fixed none none entmax segments
multiply encoder_decoder coordinates asentmax none transparent \
  sparsemax none
addition decoder_only t5 none none window stick_breaking segments
successor encoder_decoder fire log_items none none softmax none
modular decoder_only randomized log_visible none transparent entmax segments
reverse encoder_decoder sinusoidal one_plus_log none window sparsemax none
addition encoder_decoder abacus scalable none none softmax none
""".strip().split("\n")
]


def loud_params(experiment):
  """Parameters whose outputs vary with what attention sees."""

  def louder(path, x):
    name = path[-1].key
    if name in ("bias", "scale"):
      return jnp.full(x.shape, float(name == "scale"))
    loud = name != "kernel" or path[-2].key in ("value", "out")
    loud &= path[0].key != "segment_embedder"  # the same for many inputs
    return 3 * x if loud and x.ndim > 1 else x

  return jax.tree_util.tree_map_with_path(louder, untrained.params(experiment))


@functools.cache
def make(case: Case) -> Model:
  """A model that nobody trained."""
  fields = {
    "positions.kind": case.positions,
    "positions.table": 256,
    "temperature.kind": case.temperature,
    "temperature.stretch": 3.0,
    "attention.normalizer": case.normalizer,
    "positions.segments": case.segments == "segments",
    "model.norm": case.norm,
    "model.num_encoder_layers": int(case.bias == "none"),
    "bias.kind": "none" if case.bias == "none" else "window",
  }
  config = untrained.config(case.task, case.kind, fields)
  experiment = build(config)
  scaffold = of_seed(make_scaffold(config, experiment), 0)
  if case.bias == "transparent":
    second = {"transparent": np.array([[False, True]])}
    scaffold = {x: lines._replace(**second) for x, lines in scaffold.items()}
  return Model(experiment, scaffold, loud_params(experiment))


@functools.cache
def examples(case: Case, length: int = 3):
  """A batch of random inputs of a length, in the room that tests have."""
  model = make(case)
  experiment, task = model.experiment, model.experiment.task
  random, units = np.random.default_rng(0), task.units(length)
  shape = SAMPLES, task.operands, units
  items = task.first_item + random.integers(0, task.base, shape)
  if task.short_operand:
    items[:, 1:, 1:] = 0
  parsed = [(x, [units] * task.operands) for x in items]
  width = experiment.test_width(length)
  bound = experiment.bound(width, model.scaffold)
  args = task, experiment.kind, parsed, width, bound
  return dataset.parsed_batch(*args)


def decoded(model, batch):
  """The tokens of greedy decoding, [B, outputs]."""
  tokens = model.greedy(batch, stop=None)
  count = scored(batch, batch.target).shape[1]
  assert (tokens[:, count:] == model.experiment.task.pad).all()
  return tokens[:, :count]


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_exact_match_of_one_pass_is_that_of_decoding(case):
  """Where the decoded tokens are the target, and where one of them is not."""
  model, batch = make(case), examples(case)
  tokens = decoded(model, batch)
  if case.task != "parity_classification":  # one label, which may be the same
    assert len(set(map(bytes, tokens))) > 2
  odd = np.arange(SAMPLES) % 2 == 1
  place = np.arange(SAMPLES) // 2 % tokens.shape[1]
  target = tokens.copy()
  vocab_size = model.experiment.model.config.vocab_size
  target[odd, place[odd]] = (target[odd, place[odd]] + 1) % vocab_size
  changed = untrained.with_target(batch, target)
  exact = model.matches(changed)
  assert np.array_equal(exact, ~odd)
  assert np.array_equal(exact, (decoded(model, changed) == target).all(axis=1))


def leaking(case: Case) -> tuple[Model, Model]:
  """A model whose scaffold shows the future, and the same without leave."""
  model = make(case)
  lines = model.scaffold["self"]
  ahead = np.where(lines.intercept == -1, 1, lines.intercept)
  scaffold = model.scaffold | {"self": lines._replace(intercept=ahead)}
  bias = dataclasses.replace(model.experiment.bias, allow_leak=True)
  experiment = dataclasses.replace(model.experiment, bias=bias)
  causal = dataclasses.replace(model, scaffold=scaffold)
  return dataclasses.replace(causal, experiment=experiment), causal


def test_where_the_future_may_show_outputs_are_decoded():
  """A key that is not written yet is not seen; exact match is of decoding."""
  case = next(c for c in CASES if c.task == "modular")
  model, causal = leaking(case)
  batch = examples(case)
  tokens = decoded(causal, batch)
  assert np.array_equal(decoded(model, batch), tokens)
  sites = model.experiment.site_inputs(model.scaffold, batch)
  values = np.asarray(sites.biases["self"].values)
  behind = np.triu(np.ones(values.shape[-2:], bool), 1)
  assert (values[..., behind] > -1).any()  # a pass at once would see it
  target = tokens.copy()
  target[::2, 1] += 1
  changed = untrained.with_target(batch, target)
  assert np.array_equal(model.matches(changed), np.arange(SAMPLES) % 2 == 1)
