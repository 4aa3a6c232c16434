"""The benches of --mode=bench are functions that yield cases in groups.

The cases of a group are timed in turns, so that they can be compared.
"""

import importlib.util
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from lengthgen_jax.benchmark.subjects import (
  Subject,
  decoding,
  evaluation,
  model,
  papers,
  preset_config,
  retrained,
  step,
  subject,
)
from lengthgen_jax.benchmark.timing import Case
from lengthgen_jax.errors import check
from lengthgen_jax.pipelines import attention_statistics, calibrate


class Setting(NamedTuple):
  """A Setting holds the conditions that benches are run under.

  Attributes:
    own: the Subject of --config.
    lengths: of inputs, as people count them: digits or items.
    threads: numbers of CPU threads at which the bench `pytorch` compares.
  """

  own: Subject
  lengths: tuple[int, ...]
  threads: tuple[int, ...]


# Benches.


def papers_step(setting: Setting) -> Iterator[list[Case]]:
  """Times a training step at the papers' shape."""
  yield [step("papers' shape", "", papers(), 1)]


def main_job(setting: Setting) -> Iterator[list[Case]]:
  """Times training of the main job: the vanilla model, and the model that is
  retrained with lines, dense and along the lines."""
  second_stage = retrained("addition,abc")
  yield [step("main job", "", subject(preset_config("quickstart")))]
  yield [
    step("retraining", "dense", second_stage),
    step(
      "retraining",
      "lines",
      second_stage,
      sparse_plan=second_stage.sparse_plan,
    ),
  ]


def fixed(setting: Setting) -> Iterator[list[Case]]:
  """Times training with lines at the papers' width of 61 digits."""
  second_stage = retrained("addition,abc,fixed")
  yield [
    step("retraining at width 61", "dense", second_stage, 4),
    step(
      "retraining at width 61",
      "lines",
      second_stage,
      4,
      second_stage.sparse_plan,
    ),
  ]


def sort(setting: Setting) -> Iterator[list[Case]]:
  """Times training of the preset `none,best` of configs/sorting.py."""
  sorting_subject = subject(preset_config("sorting", "none,best"))
  yield [step("sorting", "", sorting_subject, 20)]


def config(setting: Setting) -> Iterator[list[Case]]:
  """Times training of --config.

  Raises:
    UsageError: another bench times the same training.
  """
  known = (subject(preset_config("quickstart")), papers())
  key = lambda candidate: (candidate.experiment, candidate.train)
  check(
    all(key(setting.own) != key(other) for other in known),
    "--config is timed already",
  )
  candidate = setting.own
  yield [step("--config", "", candidate, sparse_plan=candidate.sparse_plan)]


def evaluate(setting: Setting) -> Iterator[list[Case]]:
  """Times a pass of evaluation at 60 digits, of the vanilla model and of the
  model with lines."""
  vanilla = model(subject(preset_config("quickstart")))
  lined = model(retrained("addition,abc"))
  yield [
    evaluation("evaluation", "vanilla", vanilla, 60, None),
    evaluation("evaluation", "lines", lined, 60, lined.sparse_plan),
  ]


def lengths(setting: Setting) -> Iterator[list[Case]]:
  """Times a pass of evaluation, dense and gathered along lines, and a training
  step at each length."""
  lined_model = model(retrained("addition,abc"))
  for length in setting.lengths:
    yield [
      evaluation("by length", "dense", lined_model, length, None),
      evaluation(
        "by length", "gathered", lined_model, length, lined_model.sparse_plan
      ),
    ]
    fields = {"data.train_length": length, "data.widths": ()}
    fields["train.batch_size"] = max(4000 // length, 1)
    long = retrained("addition,abc", **fields)
    training = step(
      "by length", "training", long, 1, sparse_plan=long.sparse_plan
    )
    training.length = length
    yield [training]


def decoder(setting: Setting) -> Iterator[list[Case]]:
  """Times decoding at each length: without a cache, with one, and with a ring
  of the rows that lines reach."""
  lined_model = model(retrained("addition,abc"))
  for length in setting.lengths:
    ways = ("no cache", "cache", "ring of rows")
    yield [decoding(way, lined_model, length) for way in ways]


def calibration(setting: Setting) -> Iterator[list[Case]]:
  """Times calibration: attention averaged over samples of one condition, and
  the lines that are found in it."""
  full_config = preset_config("quickstart")
  vanilla = model(subject(full_config))

  def go() -> None:
    args = full_config.calibration, vanilla, 10, 6
    means, _, _ = attention_statistics.collect(*args)
    for site, mean in means.items():
      calibrate.judge(
        full_config.calibration, vanilla.experiment.task, [mean], site
      )

  samples = full_config.calibration.samples
  yield [Case("calibration", "", go, samples=samples, guess=3.0)]


def pytorch(setting: Setting) -> Iterator[list[Case]]:
  """Times a training step at the papers' shape in PyTorch and here, with equal
  numbers of threads.

  Raises:
    UsageError: PyTorch is not installed, or the device is no CPU.
  """
  check(
    importlib.util.find_spec("torch"),
    "PyTorch is not there: pip install 'lengthgen_jax[bench]'",
  )
  check(jax.default_backend() == "cpu", "compares on CPUs alone")
  from lengthgen_jax.benchmark import torch_step

  papers_subject = papers()
  shape = papers_subject.experiment.model.config
  part = papers_subject.experiment.step_specs[0][0].parts[0]
  sample = lambda: papers_subject.experiment.sample(
    jax.random.key(0), "addition", part
  )
  batch = jax.jit(sample)()
  batch = [np.asarray(x) for x in (batch.source, batch.inputs, batch.target)]
  flops = step("PyTorch", "", papers_subject, 1).cost().flops
  for threads in setting.threads:
    group = [step("PyTorch", f"ours, {threads} threads", papers_subject, 1)]
    group[0].threads = threads
    for kind, label in (
      ("stock", "torch.nn layers"),
      ("fast", "its fastest layers"),
    ):
      group.append(
        Case(
          "PyTorch",
          f"{label}, {threads} threads",
          torch_step.step(kind, shape, papers_subject.train, batch, threads),
          steps=1,
          samples=part.count,
          tokens=batch[1].size,
          guess=20.0 / threads,
          flops=flops,
          memory=torch_step.MEMORY[kind],
          threads=threads,
        )
      )
    yield group


BENCHES = {
  "papers": papers_step,
  "main": main_job,
  "fixed": fixed,
  "sorting": sort,
  "config": config,
  "evaluate": evaluate,
  "lengths": lengths,
  "decode": decoder,
  "calibration": calibration,
  "pytorch": pytorch,
}
