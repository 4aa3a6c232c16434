"""One teacher-forced pass proves what decoding would say.

For every task in both families of models; positions, temperatures and biases
are taken in turn, so that each has its share of the cases.
"""

import dataclasses
import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained

from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.attention.temperature import TEMPERATURES
from lengthgen_jax.config.build import build, make_scaffold
from lengthgen_jax.evaluation import measures, trained
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.models.layers import NORMS
from lengthgen_jax.tasks import TASKS, dataset
from lengthgen_jax.tasks.automata import SequenceTask
from lengthgen_jax.tasks.packing import KINDS

SAMPLES = 24
# Nothing; lines alone; lines where some heads see everything.
BIASES = ("none", "window", "transparent")
SEQUENCES = "modular", "reverse"  # one of each direction


class Case(NamedTuple):
  task: str
  kind: str
  positions: str
  temperature: str
  norm: str
  bias: str


def cases() -> list[Case]:
  """Every task in both families (sequences, which differ in a table alone: few
  in one), every choice of the others at least once."""
  queues = [list(POSITIONS), list(TEMPERATURES), list(NORMS), list(BIASES)]
  own = [name for name in TASKS if not issubclass(TASKS[name], SequenceTask)]
  few = zip(SEQUENCES, KINDS, strict=True)
  pairs = [*itertools.product(own, KINDS), *few]
  count = max(len(pairs), *map(len, queues))
  made = []
  for task, kind in itertools.islice(itertools.cycle(pairs), count):
    fits = [
      lambda name, task=task: (
        TASKS[task].of_digits or not POSITIONS[name].of_digits
      ),
      lambda name: True,
      lambda name: True,
      lambda name, task=task: (
        name == "none" or TASKS[task]().strides or TASKS[task].axes > 1
      ),
    ]
    chosen = []
    for queue, fit in zip(queues, fits, strict=True):
      found = next(name for name in queue if fit(name))
      queue.remove(found)
      queue.append(found)
      chosen.append(found)
    made.append(Case(task, kind, *chosen))
  return made


CASES = cases()


def loud_params(experiment):
  """Parameters whose outputs vary with what attention sees."""

  def louder(path, x):
    name = path[-1].key
    if name in ("bias", "scale"):
      return jnp.full(x.shape, float(name == "scale"))
    loud = name != "kernel" or path[-2].key in ("value", "out")
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
    "model.norm": case.norm,
    "model.num_encoder_layers": int(case.bias == "none"),
    "bias.kind": "none" if case.bias == "none" else "window",
  }
  config = untrained.config(case.task, case.kind, fields)
  experiment = build(config)
  scaffold = of_seed(make_scaffold(config, experiment), 0)
  if case.bias == "transparent":
    some = np.array([[False, True]])
    scaffold = {
      site: own._replace(transparent=some) for site, own in scaffold.items()
    }
  return Model(experiment, scaffold, loud_params(experiment))


@functools.cache
def examples(case: Case, length: int = 3):
  """A batch of random inputs of a length, in the room that tests have."""
  model = make(case)
  experiment, task = model.experiment, model.experiment.task
  random, units = np.random.default_rng(0), task.units(length)
  if isinstance(task, SequenceTask):
    items = random.integers(0, task.base, (SAMPLES, 1, units))
  elif task.ragged:
    items = random.integers(1, task.alphabet + 1, (SAMPLES, units))
  else:
    items = random.integers(0, task.base, (SAMPLES, task.operands, units))
    items[:, 1:, 1 if task.short_operand else units :] = 0
  parsed = [(own, [units] * task.operands) for own in items]
  width = experiment.test_width(length)
  bound = experiment.bound(width, model.scaffold)
  how = (task, experiment.kind, parsed, width, bound)
  return jax.jit(lambda: dataset.typed_batch(*how))()


def outputs(batch, rows_BxT):
  """The scored rows [B, outputs] of an array."""
  scored = np.asarray(batch.weight) > 0
  return np.asarray(rows_BxT)[scored].reshape(len(scored), -1)


def decoded(model, batch):
  """What greedy decoding says, [B, outputs]."""
  told = model.greedy(batch, stop=None)
  count = outputs(batch, batch.target).shape[1]
  assert (told[:, count:] == model.experiment.task.pad).all()
  return told[:, :count]


def wanting(batch, answers):
  """The same prompts with other outputs [B, outputs] as the truth."""
  scored = np.asarray(batch.weight) > 0
  target, inputs = np.array(batch.target), np.array(batch.inputs)
  target[scored] = np.asarray(answers).reshape(-1)
  inputs[:, 1:] = np.where(scored[:, :-1], target[:, :-1], inputs[:, 1:])
  return batch._replace(target=target, inputs=inputs)


def test_cases_cover_the_registries():
  lone = {n for n in TASKS if issubclass(TASKS[n], SequenceTask)}
  for name, choices in (
    ("task", {*TASKS} - lone | {*SEQUENCES}),
    ("kind", KINDS),
    ("positions", POSITIONS),
    ("temperature", TEMPERATURES),
    ("norm", NORMS),
    ("bias", BIASES),
  ):
    assert {getattr(case, name) for case in CASES} == set(choices)


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_exact_match_of_one_pass_is_that_of_decoding(case):
  """Where what was told is the truth, and where one token of it is not."""
  model, batch = make(case), examples(case)
  assert (model.sparse_plan is not None) == model.experiment.supports_sparse(
    model.scaffold
  )
  told = decoded(model, batch)
  if case.task != "parity_classification":  # one label, which may be the same
    assert len(set(map(bytes, told))) > 2
  odd = np.arange(SAMPLES) % 2 == 1
  place = np.arange(SAMPLES) // 2 % told.shape[1]
  truth = told.copy()
  shifted = (
    truth[odd, place[odd]] + 1
  ) % model.experiment.model.config.vocab_size
  truth[odd, place[odd]] = shifted
  again = wanting(batch, truth)
  token, exact = model.hits(again)
  token = outputs(again, token)
  assert np.array_equal(exact, ~odd)
  assert np.array_equal(exact, (decoded(model, again) == truth).all(axis=1))
  before = np.arange(told.shape[1]) < place[:, None]
  assert token[before | ~odd[:, None]].all()
  assert not token[odd, place[odd]].any()


def leaking(case: Case) -> tuple[Model, Model]:
  """A model whose scaffold shows the future, and the same without leave."""
  model = make(case)
  own = model.scaffold["self"]
  ahead = np.where(own.intercept == -1, 1, own.intercept)
  scaffold = model.scaffold | {"self": own._replace(intercept=ahead)}
  bias = dataclasses.replace(model.experiment.bias, allow_leak=True)
  experiment = dataclasses.replace(model.experiment, bias=bias)
  causal = dataclasses.replace(model, scaffold=scaffold)
  return dataclasses.replace(causal, experiment=experiment), causal


@pytest.mark.parametrize("kind", KINDS)
def test_where_the_future_may_show_outputs_are_decoded(kind):
  """A key that is not written yet is not seen; exact match is of decoding."""
  case = next(c for c in CASES if c.kind == kind and c.bias == "transparent")
  model, causal = leaking(case)
  batch = examples(case)
  told = decoded(causal, batch)
  assert np.array_equal(decoded(model, batch), told)
  sites = model.experiment.sites(model.scaffold, batch)
  values = np.asarray(sites.biases["self"].values)
  behind = np.triu(np.ones(values.shape[-2:], bool), 1)
  assert (values[..., behind] > -1).any()  # a pass at once would see it
  truth = told.copy()
  truth[::2, 1] += 1
  again = wanting(batch, truth)
  token, exact = model.hits(again)
  assert np.array_equal(exact, np.arange(SAMPLES) % 2 == 1)
  assert np.array_equal(outputs(again, token), told == truth)
  assert token[np.asarray(again.weight) == 0].all()


class Shown(NamedTuple):
  """A model that is tested on one batch."""

  model: Model
  batch: object

  def batches(self, test):
    yield self.batch, SAMPLES - 4

  def __getattr__(self, name):
    return getattr(self.model, name)


def test_rows_of_a_task_without_an_end_token():
  """Of the examples that count: the last ones of a batch may fill it up."""
  case = next(c for c in CASES if c.task == "sort" and c.kind == KINDS[1])
  truth = decoded(make(case), examples(case)).copy()
  truth[::2, 1] = (truth[::2, 1] + 1) % 8  # a token of V = 5 and three more
  shown = Shown(make(case), wanting(examples(case), truth))
  found = {
    row["metric"]: row
    for measure in measures.MEASURES.values()
    for row in measure(shown, trained.EvalSpec("uniform", "uniform", (), 3, 20))
  }
  assert set(found) == {"em", "token", "position", "edit"}
  assert (found["em"]["correct"], found["em"]["n"]) == (10, 20)
  assert found["position"]["by_position"][:2] == [1.0, 0.5]
  assert found["edit"]["value"] == 10 / 60
