"""Cases of --mode=bench: steps, passes and decoding of a subject.

Parameters are random: how long they take does not depend on them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from configs import arithmetic
from lengthgen_jax.attention.biases.window import Line, shared_lines
from lengthgen_jax.attention.lines import LEFT, RIGHT, WHOLE, of_seed
from lengthgen_jax.benchmark.timing import Case
from lengthgen_jax.config import build, stages
from lengthgen_jax.errors import UsageError
from lengthgen_jax.evaluation.trained import Model, Test
from lengthgen_jax.models import decode
from lengthgen_jax.training import optimizer
from lengthgen_jax.training.step import Trainer

MOST = 64  # examples of a pass


class Subject(NamedTuple):
  """What is timed; its scaffold has an axis of one seed."""

  experiment: object
  train: optimizer.TrainConfig
  scaffold: dict

  @property
  def open_heads(self):
    """How training goes there."""
    return self.experiment.followed(self.scaffold)


# Subjects.


def subject(made) -> Subject:
  """Of a whole config."""
  experiment = build.build(made)
  train = optimizer.TrainConfig(**made.train)
  return Subject(experiment, train, build.make_scaffold(made, experiment))


def papers() -> Subject:
  """The ABS/ABC papers' shape, with the released program's encoder: 512
  examples of 124 source and 62 target tokens."""
  return subject(arithmetic.get_config("addition,vanilla,released"))


def retrained(preset: str, **fields) -> Subject:
  """The second stage of ABC, with lines like those that calibration finds: own
  digits, the digit before; the row itself, the start token."""
  made = stages.retrain_config(arithmetic.get_config(preset), (0,), None)
  made.update_from_flattened_dict(fields)
  own = subject(made)
  heads, task = own.experiment.model.config.num_heads, own.experiment.task
  digits = [Line(n, RIGHT, 1, 0) for n in range(len(task.segments))]
  lines = {
    "self": shared_lines(
      [Line(WHOLE, LEFT, 1, 0), Line(WHOLE, LEFT, 0, 0)], heads
    ),
    "cross": shared_lines([*digits, Line(0, RIGHT, 1, -1)], heads),
  }
  return own._replace(scaffold=lines)


def drawn(shapes):
  """Small random arrays of these shapes."""
  rng = np.random.default_rng(0)
  draw = lambda x: jnp.asarray(0.1 * rng.normal(size=x.shape), x.dtype)
  return jax.tree.map(draw, shapes)


def model(own: Subject) -> Model:
  """With random parameters."""
  shapes = jax.eval_shape(lambda: own.experiment.init(0))
  return Model(own.experiment, of_seed(own.scaffold, 0), drawn(shapes))


# Cases.


def step(name: str, way: str, own: Subject, count=10, open_heads=None) -> Case:
  """`count` training steps in one program, as training takes them."""
  experiment = own.experiment
  trainer = Trainer(experiment, own.train, open_heads)
  params = drawn(jax.eval_shape(lambda: experiment.init(0)))
  moments = optimizer.make(own.train).init(params)

  def run(params, moments, scaffold, seed, count):
    def one(i, carry):
      for lesson in experiment.lessons:
        args = seed, i, lesson, scaffold
        carry = trainer.train_step(*carry, *args)[:2]
      return carry

    return jax.lax.fori_loop(0, count, one, (params, moments))

  parts = [
    (share.head, part)
    for lesson in experiment.lessons
    for share in lesson
    for part in share.parts
  ]
  rows = [
    jax.eval_shape(lambda p=p: experiment.sample(jax.random.key(0), *p))
    for p in parts
  ]
  scaffold, lessons = of_seed(own.scaffold, 0), len(experiment.lessons)
  return Case(
    name,
    way,
    run,
    (params, moments, scaffold, jnp.int32(0), jnp.int32(count)),
    steps=count * lessons,
    samples=count * sum(part.count for _, part in parts),
    tokens=count * sum(batch.inputs.size for batch in rows),
    loops=(count,),
  )


def asked(own: Model, length: int, size: int = 0):
  """A batch of test inputs of a length: `size`, or as many as evaluation takes
  at once."""
  name = next(iter(own.experiment.task.test_sets))
  if not size:
    try:
      size = min(own.pass_size(Test(name, name, (), length, MOST)), MOST)
    except UsageError:  # not even one fits: left out, by name, by bench
      size = 1
  index = np.arange(size)
  return own.experiment.test_batch(name, 0, index, length, own.scaffold)


def evaluation(name: str, way: str, own: Model, length: int, heads) -> Case:
  """One teacher-forced pass."""
  plain = Model(own.experiment, {}, own.params) if heads is None else own
  batch, head = asked(plain, length), own.experiment.task.name

  def run(params, scaffold, batch):
    args = params, scaffold, batch, head
    return own.experiment.hits(*args, open_heads=heads)

  return Case(
    name,
    way,
    run,
    (own.params, own.scaffold, batch),
    samples=len(batch.inputs),
    tokens=batch.inputs.size,
    length=length,
  )


def decoding(way: str, own: Model, length: int) -> Case:
  """Free-running decoding: every output, whatever the tokens are."""
  experiment = own.experiment
  batch = asked(own, length, 1)  # one answer, the same work at every length
  count, outputs = batch.inputs.shape
  blocks, kept = -(-outputs // decode.BLOCK), own.ring(batch)

  def forget(params, scaffold, batch, outputs):
    """All rows again for each output."""

    def one(i, inputs):
      args = batch._replace(inputs=inputs), experiment.task.name
      told = experiment.apply(params, scaffold, *args)[0].argmax(-1)
      return inputs.at[:, i + 1].set(told[:, i].astype(inputs.dtype))

    return jax.lax.fori_loop(0, outputs, one, batch.inputs)

  def cached(params, scaffold, batch, outputs):
    args = params, scaffold, batch, outputs, None
    return decode.greedy(experiment, *args)

  def ring(params, scaffold, batch, outputs):
    args = params, scaffold, batch, outputs, None
    return decode.stream(experiment, *args, kept)

  ways = {
    "no cache": (forget, (outputs - 1,)),
    "cache": (cached, (outputs,)),
    "ring of rows": (ring, (blocks, min(decode.BLOCK, outputs))),
  }
  run, loops = ways[way]
  last = jnp.int32(outputs - (way == "no cache"))
  return Case(
    "decoding",
    way,
    run,
    (own.params, own.scaffold, batch, last),
    samples=count,
    tokens=count * outputs,
    length=length,
    loops=loops,
  )
