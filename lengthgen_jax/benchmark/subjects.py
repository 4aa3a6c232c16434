"""The cases of --mode=bench are training steps, passes of evaluation, and
decoding, each of a subject: an experiment and its scaffold.

Parameters are random, because times do not depend on them.
"""

import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax.attention.biases.scaffold import SparsePlan
from lengthgen_jax.attention.lines import (
  LEFT,
  RIGHT,
  WHOLE,
  Line,
  of_seed,
  shared_lines,
)
from lengthgen_jax.benchmark.timing import Case
from lengthgen_jax.config import build, fields, load_presets
from lengthgen_jax.errors import UsageError
from lengthgen_jax.evaluation import decode
from lengthgen_jax.evaluation.trained import EvalSpec, Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.training import optimizer
from lengthgen_jax.training.train_step import (
  TrainSpec,
  draw_batches,
  train_step,
)

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
MOST = 64  # most examples of a pass


class Subject(NamedTuple):
  """A Subject is an experiment that is timed, with the way it is trained.

  Attributes:
    experiment: the task, the model and the batches.
    train: the optimizer and its schedule.
    scaffold: lines or matrices by attention site, with an axis of one seed.
  """

  experiment: Experiment
  train: optimizer.TrainConfig
  scaffold: dict

  @property
  def sparse_plan(self) -> SparsePlan | None:
    """Returns the plan by which training steps attend along lines; None where
    their attention is dense."""
    return self.experiment.sparse_training_plan(self.scaffold)


# Subjects.


def subject(full_config) -> Subject:
  """Returns the subject of a whole config."""
  experiment = build.build(full_config)
  train = optimizer.TrainConfig(**full_config.train)
  return Subject(
    experiment, train, build.make_scaffold(full_config, experiment)
  )


def preset_config(name: str, *preset: str) -> ConfigDict:
  """Returns the config of a preset of a file in configs/."""
  return load_presets(CONFIGS / f"{name}.py").get_config(*preset)


def papers() -> Subject:
  """Returns the subject of the ABS/ABC papers' shape, with the encoder of the
  released program: 512 examples of 124 source and 62 target tokens."""
  return subject(preset_config("arithmetic", "addition,vanilla,released"))


def retrained(preset: str, **overrides: Any) -> Subject:
  """Returns the second stage of ABC, with lines like those that calibration
  finds: over the operands' digits of the same place and of the place before,
  over the row itself, and over the start token.

  Args:
    preset: of configs/arithmetic.py.
    **overrides: {field: value} of overrides of the second stage's config.
  """
  full_config = fields.retrain_config(
    preset_config("arithmetic", preset), (0,), None
  )
  full_config.update_from_flattened_dict(overrides)
  second_stage = subject(full_config)
  heads, task = (
    second_stage.experiment.model.config.num_heads,
    second_stage.experiment.task,
  )
  digits = [Line(n, RIGHT, 1, 0) for n in range(len(task.segments))]
  lines = {
    "self": shared_lines(
      [Line(WHOLE, LEFT, 1, 0), Line(WHOLE, LEFT, 0, 0)], heads
    ),
    "cross": shared_lines([*digits, Line(0, RIGHT, 1, -1)], heads),
  }
  return second_stage._replace(scaffold=lines)


def drawn(shapes: Any) -> Any:
  """Returns a pytree of small random arrays.

  Args:
    shapes: a pytree of jax.ShapeDtypeStruct.
  """
  rng = np.random.default_rng(0)
  draw = lambda x: jnp.asarray(0.1 * rng.normal(size=x.shape), x.dtype)
  return jax.tree.map(draw, shapes)


def model(subject: Subject) -> Model:
  """Returns the model of a subject, with random parameters."""
  shapes = jax.eval_shape(lambda: subject.experiment.init(0))
  return Model(subject.experiment, of_seed(subject.scaffold, 0), drawn(shapes))


# Cases.


def step(
  name: str,
  way: str,
  subject: Subject,
  count: int = 10,
  sparse_plan: SparsePlan | None = None,
) -> Case:
  """Returns the case of training steps in one program, as in training.

  Args:
    name, way: of the case.
    subject: what is trained.
    count: rounds of the program.
    sparse_plan: as in Experiment.sites.
  """
  experiment = subject.experiment
  spec = TrainSpec(experiment, subject.train, sparse_plan)
  params = drawn(jax.eval_shape(lambda: experiment.init(0)))
  opt_state = optimizer.make(subject.train).init(params)

  def run(params, opt_state, scaffold, seed, count):
    def one(i, carry):
      for step_spec in experiment.step_specs:
        batches = draw_batches(spec, step_spec, seed, i)
        carry = train_step(spec, step_spec, *carry, batches, scaffold)[:2]
      return carry

    return jax.lax.fori_loop(0, count, one, (params, opt_state))

  parts = [
    (share.head, part)
    for step_spec in experiment.step_specs
    for share in step_spec
    for part in share.parts
  ]
  batches = [
    jax.eval_shape(lambda p=p: experiment.sample(jax.random.key(0), *p))
    for p in parts
  ]
  scaffold = of_seed(subject.scaffold, 0)
  return Case(
    name,
    way,
    run,
    (params, opt_state, scaffold, jnp.int32(0), jnp.int32(count)),
    steps=count * spec.steps_per_round,
    samples=count * sum(part.count for _, part in parts),
    tokens=count * sum(batch.inputs.size for batch in batches),
    loops=(count,),
  )


def asked(model: Model, length: int, size: int = 0) -> Batch:
  """Returns a batch of test inputs.

  Args:
    model: whose task and scaffold are used.
    length: of the inputs, as people count it.
    size: number of inputs; 0 is as many as evaluation takes in one pass, but at
      most MOST.
  """
  name = next(iter(model.experiment.task.test_sets))
  if not size:
    try:
      size = min(model.pass_size(EvalSpec(name, name, (), length, MOST)), MOST)
    except UsageError:  # not even one fits: bench.fitting will leave it out
      size = 1
  index = np.arange(size)
  return model.experiment.test_batch(name, 0, index, length, model.scaffold)


def evaluation(
  name: str,
  way: str,
  model: Model,
  length: int,
  sparse_plan: SparsePlan | None,
) -> Case:
  """Returns the case of one pass of evaluation with teacher forcing.

  Args:
    name, way: of the case.
    model: what is evaluated.
    length: of the inputs, as people count it.
    sparse_plan: as in Experiment.sites.
  """
  plain = (
    Model(model.experiment, {}, model.params) if sparse_plan is None else model
  )
  batch, head = asked(plain, length), model.experiment.task.name

  def run(params, scaffold, batch):
    args = params, scaffold, batch, head
    return model.experiment.hits(*args, sparse_plan=sparse_plan)

  return Case(
    name,
    way,
    run,
    (model.params, model.scaffold, batch),
    samples=len(batch.inputs),
    tokens=batch.inputs.size,
    length=length,
  )


def decoding(way: str, model: Model, length: int) -> Case:
  """Returns the case of free-running decoding of all outputs of one input; no
  end token stops it.

  Args:
    way: "no cache", "cache" or "ring of rows".
    model: what decodes.
    length: of the input, as people count it.
  """
  experiment = model.experiment
  batch = asked(model, length, 1)  # one input at every length
  count, outputs = batch.inputs.shape
  blocks, cache_window = -(-outputs // decode.BLOCK), model.cache_window(batch)

  def recompute(params, scaffold, batch, outputs):
    """Computes all rows again for each output."""

    def one(i, inputs):
      args = batch._replace(inputs=inputs), experiment.task.name
      tokens = experiment.apply(params, scaffold, *args)[0].argmax(-1)
      return inputs.at[:, i + 1].set(tokens[:, i].astype(inputs.dtype))

    return jax.lax.fori_loop(0, outputs, one, batch.inputs)

  def cached(params, scaffold, batch, outputs):
    """Computes one row for each output, and keeps keys and values."""
    args = params, scaffold, batch, outputs, None
    return decode.greedy(experiment, *args)

  def ring(params, scaffold, batch, outputs):
    """Keeps no more than the rows that lines reach."""
    args = params, scaffold, batch, outputs, None
    return decode.stream(experiment, *args, cache_window)

  ways = {
    "no cache": (recompute, (outputs - 1,)),
    "cache": (cached, (outputs,)),
    "ring of rows": (ring, (blocks, min(decode.BLOCK, outputs))),
  }
  run, loops = ways[way]
  last = jnp.int32(outputs - (way == "no cache"))
  return Case(
    "decoding",
    way,
    run,
    (model.params, model.scaffold, batch, last),
    samples=count,
    tokens=count * outputs,
    length=length,
    loops=loops,
  )
