"""This module lists what --mode=bench times.

A benchmark yields groups of cases, and the cases of a group are compared with
each other. Cases are training steps, passes of evaluation, decoding and
calibration. Their models have random parameters, on which times do not depend.
"""

import importlib.util
import math
import os
from collections.abc import Callable, Iterator
from functools import partial
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
from lengthgen_jax.config import build, default_config, fields
from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.evaluation import decode
from lengthgen_jax.evaluation.trained import EvalSpec, Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines import attention_statistics
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.training import optimizer
from lengthgen_jax.training.train_step import (
  TrainSpec,
  draw_batches,
  train_step,
)

MAX_EXAMPLES = 64  # in a pass of evaluation
# The most digits at which decoding without a cache is timed: its time is cubic
# in their number.
MAX_RECOMPUTED = 200

# The shapes that are timed, as changes {field: value} of a task's default
# config: those of configs/quickstart.py, of configs/arithmetic.py:addition with
# abc,fixed and with vanilla,released, and of configs/sorting.py:none,best.
# Fields that do not change the time of a step, like the learning rate, keep
# their defaults.
MAIN_JOB = {
  "data.widths": (8, 9, 10),
  "train.optimizer": "muon",
  "retrain.train.batch_size": 64,
}
MAIN_JOB_AT_WIDTH_61 = {"data.width": "fixed", "train.batch_size": 64}
PAPERS = {
  "data.numbers": "permutation",
  "data.width": "fixed",
  "model.emb_dim": 128,
  "model.mlp_dim": 512,
  "model.num_encoder_layers": 0,
  "model.num_decoder_layers": 6,
  "model.norm": "post",
  "model.dropout_rate": 0.3,
  "train.batch_size": 512,
  "train.clip_norm": 0.0,
}
SORTING = {
  "data.train_length": 20,
  "data.shortest": 2,
  "data.short_longest": 5,
  "data.short_share": 0.5,
  "data.buckets": (5, 20),
  "sort.repeat_share": 0.9,
  "sort.repeat_values": "log_uniform",
  "model.kind": "decoder_only",
  "model.num_encoder_layers": 0,
  "model.num_decoder_layers": 3,
  "model.num_heads": 4,
  "model.activation": "gelu",
  "attention.normalizer": "entmax",
  "positions.kind": "none",
  "positions.segments": True,
  "train.batch_size": 32,
}


class Workload(NamedTuple):
  """A Workload is an experiment with its scaffold and its optimizer.

  Attributes:
    experiment: the task, the model and the batches.
    train: the optimizer and its schedule.
    scaffold: {site: lines or matrices} with a leading axis of seeds, of which
      the first one is used; {} for no bias.
  """

  experiment: Experiment
  train: optimizer.TrainConfig
  scaffold: dict

  @property
  def sparse_plan(self) -> SparsePlan | None:
    """Returns the plan by which training steps attend along lines alone; None
    where their attention is dense."""
    return self.experiment.sparse_training_plan(self.scaffold)

  @property
  def plan_along_lines(self) -> SparsePlan | None:
    """Returns the plan of attention along lines, also where dense attention is
    faster on this device; None where `Experiment.supports_sparse` is False."""
    return self.experiment.sparse_plan(of_seed(self.scaffold, 0))

  def params(self) -> dict:
    """Returns normal random parameters with a standard deviation of 0.1."""
    rng = np.random.default_rng(0)
    return jax.tree.map(
      lambda x: jnp.asarray(0.1 * rng.normal(size=x.shape), x.dtype),
      jax.eval_shape(lambda: self.experiment.init(0)),
    )

  def model(self) -> Model:
    """Returns the model with the parameters of `params`."""
    return Model(self.experiment, of_seed(self.scaffold, 0), self.params())


def make_config(task: str, changes: dict[str, Any]) -> ConfigDict:
  """Returns the default config of a task after changes {field: value}."""
  config = default_config(task)
  config.update_from_flattened_dict(changes)
  return config


def make_workload(config: ConfigDict) -> Workload:
  """Returns the workload that a config describes."""
  experiment = build.build(config)
  return Workload(
    experiment,
    optimizer.TrainConfig(**config.train),
    build.make_scaffold(config, experiment),
  )


def first_stage(changes: dict[str, Any]) -> Workload:
  """Returns the workload of the first stage of ABC on addition, which trains a
  vanilla model.

  Args:
    changes: {field: value} that differ from the task's default config.
  """
  return make_workload(make_config("addition", changes))


def papers_shape() -> Workload:
  """Returns the workload of addition at the shape of the ABS and ABC papers, as
  the released program has it: 512 examples of 124 source and 62 target tokens,
  and no encoder layers."""
  return first_stage(PAPERS)


def retraining(changes: dict[str, Any]) -> Workload:
  """Returns the workload of the second stage of ABC on addition.

  Its lines are like those that calibration finds: to the digits of the same
  place in both operands and of the place before in the first, to the row
  itself, and to the start token.

  Args:
    changes: as in `first_stage`, of which this is the second stage.
  """
  config = make_config("addition", changes)
  workload = make_workload(fields.retrain_config(config, (0,), None))
  heads = workload.experiment.model.config.num_heads
  operands = range(len(workload.experiment.site_segments["cross"]))
  digits = [Line(operand, RIGHT, 1, 0) for operand in operands]
  itself, start_token = Line(WHOLE, LEFT, 1, 0), Line(WHOLE, LEFT, 0, 0)
  lines = {
    "self": shared_lines([itself, start_token], heads),
    "cross": shared_lines([*digits, Line(0, RIGHT, 1, -1)], heads),
  }
  return workload._replace(scaffold=lines)


# Cases.


def training_steps(
  benchmark: str,
  variant: str,
  workload: Workload,
  rounds: int = 10,
  sparse_plan: SparsePlan | None = None,
  length: int | None = None,
) -> Case:
  """Returns the case of one or more rounds of gradient steps of one seed, the
  first of the scaffold, in one program.

  Args:
    benchmark, variant: as in Case.
    workload: what is trained.
    rounds: the number of rounds, each of which has one gradient step for each
      of `experiment.step_specs`.
    sparse_plan: the plan of attention along lines; None for dense attention.
    length: is shown beside the variant; the workload has inputs of its own.
  """
  experiment = workload.experiment
  spec = TrainSpec(experiment, workload.train, sparse_plan)
  params = workload.params()
  opt_state = optimizer.make_optimizer(workload.train).init(params)

  def run(params, opt_state, scaffold, seed, rounds):
    def train_round(index: jax.Array, carry: tuple) -> tuple:
      params, opt_state = carry
      for step_spec in experiment.step_specs:
        # The round stands for the step: which examples are drawn does not
        # change the time.
        batches = draw_batches(spec, step_spec, seed, index)
        params, opt_state, _ = train_step(
          spec, step_spec, params, opt_state, batches, scaffold
        )
      return params, opt_state

    return jax.lax.fori_loop(0, rounds, train_round, (params, opt_state))

  # The shapes [B, T] of the decoder's inputs in a round.
  input_shapes = []
  for step_spec in experiment.step_specs:
    for share in step_spec:
      for part in share.parts:
        sample = partial(experiment.sample, head=share.head, part=part)
        batch = jax.eval_shape(sample, jax.random.key(0))
        input_shapes.append(batch.inputs.shape)
  scaffold = of_seed(workload.scaffold, 0)
  return Case(
    benchmark,
    variant,
    run,
    (params, opt_state, scaffold, jnp.int32(0), jnp.int32(rounds)),
    length=length,
    steps=rounds * spec.steps_per_round,
    samples=rounds * sum(shape[0] for shape in input_shapes),
    tokens=rounds * sum(map(math.prod, input_shapes)),
    trip_count=rounds,
  )


def sample_inputs(model: Model, length: int, examples: int = 0) -> Batch:
  """Returns a batch of the first test set of a model's task.

  Args:
    model: the model whose task and scaffold are used.
    length: the length of the inputs, in digits or items.
    examples: the number of examples; 0 for as many as evaluation takes in one
      pass, but at most MAX_EXAMPLES.
  """
  name = next(iter(model.experiment.task.test_sets))
  if not examples:
    spec = EvalSpec(name, name, (), length, samples=MAX_EXAMPLES)
    try:
      examples = min(model.batch_size(spec), MAX_EXAMPLES)
    except UsageError:  # not even one fits; compile_case will say so
      examples = 1
  index = np.arange(examples)
  return model.experiment.test_batch(name, 0, index, length, model.scaffold)


def evaluation(
  benchmark: str,
  variant: str,
  model: Model,
  length: int,
  sparse_plan: SparsePlan | None,
) -> Case:
  """Returns the case of one pass of evaluation with teacher forcing.

  Args:
    benchmark, variant, length: as in Case.
    model: what is evaluated.
    sparse_plan: the plan of attention along lines; None for dense attention.
  """
  experiment = model.experiment
  if sparse_plan is None:
    # Without the scaffold, the batch is as large as dense attention allows.
    batch = sample_inputs(Model(experiment, {}, model.params), length)
  else:
    batch = sample_inputs(model, length)

  def run(params, scaffold, batch):
    return experiment.matches(
      params, scaffold, batch, experiment.heads[0], sparse_plan=sparse_plan
    )

  return Case(
    benchmark,
    variant,
    run,
    (model.params, model.scaffold, batch),
    length=length,
    samples=len(batch.inputs),
    tokens=math.prod(batch.inputs.shape),
    trip_count=1,
  )


def decoding(model: Model, length: int) -> list[Case]:
  """Returns the cases of greedy decoding of one input to the last row of its
  batch: past its end, through the rows of padding.

  They decode without a cache (up to MAX_RECOMPUTED), with a cache of all rows,
  and with a cache of a window of rows, as far as lines reach.

  Args:
    model: a model whose attention follows lines.
    length: the length of the input, in digits or items.
  """
  experiment = model.experiment
  batch = sample_inputs(model, length, examples=1)
  num_rows = batch.inputs.shape[1]
  window = model.cache_window(batch)

  def recompute(params, scaffold, batch, count):
    def decode_row(row, inputs):
      args = batch._replace(inputs=inputs), experiment.heads[0]
      logits, _ = experiment.apply(params, scaffold, *args)
      token = logits[:, row].argmax(-1).astype(inputs.dtype)
      return inputs.at[:, row + 1].set(token)

    return jax.lax.fori_loop(0, count, decode_row, batch.inputs)

  def greedy(params, scaffold, batch, count):
    return decode.greedy(experiment, params, scaffold, batch, count, None)

  def stream(params, scaffold, batch, count):
    return decode.stream(
      experiment, params, scaffold, batch, count, None, window
    )

  def case(variant: str, function: Callable, count: int) -> Case:
    return Case(
      "decoding",
      variant,
      function,
      (model.params, model.scaffold, batch, jnp.int32(count)),
      length=length,
      samples=1,
      tokens=count,
    )

  cases = [case("cache", greedy, num_rows), case("window", stream, num_rows)]
  if length <= MAX_RECOMPUTED:
    # The output of the last row is not the input of another one.
    cases.insert(0, case("no cache", recompute, num_rows - 1))
  return cases


# Benchmarks: functions of the workload of --config and of the config's section
# `bench`. Most of them need neither.


def time_papers(
  workload: Workload, section: ConfigDict
) -> Iterator[list[Case]]:
  """Times a training step at the papers' shape."""
  yield [training_steps("papers' shape", "", papers_shape(), 1)]


def time_main_job(
  workload: Workload, section: ConfigDict
) -> Iterator[list[Case]]:
  """Times training in the main job: of the vanilla model, and of the model with
  lines by dense attention and along its lines."""
  yield [training_steps("main job", "", first_stage(MAIN_JOB))]
  second = retraining(MAIN_JOB)
  yield [
    training_steps("retraining", "dense", second),
    training_steps("retraining", "sparse", second, 10, second.plan_along_lines),
  ]


def time_fixed(workload: Workload, section: ConfigDict) -> Iterator[list[Case]]:
  """Times training of the model with lines at the papers' width, 61 digits."""
  name, second = "retraining at width 61", retraining(MAIN_JOB_AT_WIDTH_61)
  yield [
    training_steps(name, "dense", second, 4),
    training_steps(name, "sparse", second, 4, second.plan_along_lines),
  ]


def time_sorting(
  workload: Workload, section: ConfigDict
) -> Iterator[list[Case]]:
  """Times training of a sorting model."""
  sorter = make_workload(make_config("sort", SORTING))
  yield [training_steps("sorting", "", sorter, 20)]


def time_config(
  workload: Workload, section: ConfigDict
) -> Iterator[list[Case]]:
  """Times training by the run's own config."""
  plan = workload.sparse_plan
  yield [training_steps("--config", "", workload, sparse_plan=plan)]


def time_evaluation(
  workload: Workload, section: ConfigDict
) -> Iterator[list[Case]]:
  """Times a pass of evaluation at 60 digits, of the vanilla model and of the
  model with lines."""
  vanilla, retrained = (
    first_stage(MAIN_JOB).model(),
    retraining(MAIN_JOB).model(),
  )
  yield [
    evaluation("evaluation", "vanilla", vanilla, 60, None),
    evaluation("evaluation", "lines", retrained, 60, retrained.sparse_plan),
  ]


def time_lengths(
  workload: Workload, section: ConfigDict
) -> Iterator[list[Case]]:
  """Times a pass of evaluation, dense and along lines, and a training step,
  along lines where that is faster, at each of `bench.lengths`."""
  model = retraining(MAIN_JOB).model()
  for length in section.lengths:
    yield [
      evaluation("by length", "dense", model, length, None),
      evaluation("by length", "sparse", model, length, model.sparse_plan),
    ]
    # About 4 000 digits of each operand a step, but at least one example.
    batch_size = max(4000 // length, 1)
    longer = retraining(
      {"data.train_length": length, "train.batch_size": batch_size}
    )
    plan = longer.sparse_plan
    yield [training_steps("by length", "training", longer, 1, plan, length)]


def time_decoding(
  workload: Workload, section: ConfigDict
) -> Iterator[list[Case]]:
  """Times decoding at each of `bench.lengths`."""
  model = retraining(MAIN_JOB).model()
  for length in section.lengths:
    yield decoding(model, length)


def time_calibration(
  workload: Workload, section: ConfigDict
) -> Iterator[list[Case]]:
  """Times calibration at one width and length: averaging attention over
  samples, and selecting lines in the mean."""
  settings, model = default_config().calibration, first_stage(MAIN_JOB).model()
  condition = attention_statistics.Condition(width=10, length=6)

  def calibrate() -> None:
    means, _ = attention_statistics.collect(
      settings, model, [condition], settings.samples
    )
    for site, attention in means.items():
      attention_statistics.select_lines(
        settings, model.experiment.task, attention, site
      )

  yield [Case("calibration", "", calibrate, samples=settings.samples)]


def time_pytorch(
  workload: Workload, section: ConfigDict
) -> Iterator[list[Case]]:
  """Times a training step at the papers' shape in PyTorch and here, on each
  number of CPUs in `bench.threads` that this process may use.

  Raises:
    UsageError: PyTorch is not installed, the device is not a CPU, or the system
      is not Linux.
  """
  check(
    importlib.util.find_spec("torch"),
    "PyTorch is not installed: pip install 'lengthgen_jax[bench]'",
  )
  check(jax.default_backend() == "cpu", "PyTorch is compared on CPUs only")
  check(
    hasattr(os, "sched_getaffinity"),
    "PyTorch is compared on Linux only, where threads can be bound to CPUs",
  )
  from lengthgen_jax.benchmark import torch_step

  ours = papers_shape()
  shape = ours.experiment.model.config
  part = ours.experiment.step_specs[0][0].parts[0]
  batch = jax.jit(
    lambda: ours.experiment.sample(jax.random.key(0), "addition", part)
  )()
  arrays = [np.asarray(x) for x in (batch.source, batch.inputs, batch.target)]
  num_cpus = len(os.sched_getaffinity(0))
  for threads in (n for n in section.threads if n <= num_cpus):
    name = f"papers' shape on {threads} CPUs"
    step = training_steps(name, "ours", ours, 1)
    yield [
      step._replace(threads=threads),
      *(
        Case(
          name,
          variant,
          torch_step.make_step(kind, shape, ours.train, arrays, threads),
          steps=1,
          samples=part.count,
          tokens=math.prod(batch.inputs.shape),
          threads=threads,
          memory=torch_step.MEMORY[kind],
        )
        for kind, variant in (
          ("stock", "PyTorch, torch.nn layers"),
          ("fast", "PyTorch, its fastest layers"),
        )
      ),
    ]


# All benchmarks, by their names in bench.only.
BENCHMARKS = {
  "papers": time_papers,
  "main": time_main_job,
  "fixed": time_fixed,
  "sorting": time_sorting,
  "config": time_config,
  "evaluate": time_evaluation,
  "lengths": time_lengths,
  "decode": time_decoding,
  "calibration": time_calibration,
  "pytorch": time_pytorch,
}
