"""What --mode=bench times: a function a bench, whose docstring says what of;
it yields its cases in groups, and those of a group are timed in turns.
"""

import importlib.util
from typing import NamedTuple

import jax
import numpy as np

from configs import quickstart, sorting
from lengthgen_jax.benchmark.subjects import (
  Subject,
  decoding,
  evaluation,
  model,
  papers,
  retrained,
  step,
  subject,
)
from lengthgen_jax.benchmark.timing import Case
from lengthgen_jax.errors import check
from lengthgen_jax.pipelines import attention_statistics, calibrate


class Setting(NamedTuple):
  """What was asked for.

  Attributes:
    own: the Subject of --config.
    lengths: of inputs, as people count them.
    threads: of the machine, of what is compared at equal ones.
  """

  own: Subject
  lengths: tuple[int, ...]
  threads: tuple[int, ...]


# Benches.


def papers_step(setting: Setting):
  """training at the papers' shape"""
  yield [step("papers' shape", "", papers(), 1)]


def main_job(setting: Setting):
  """training of the main job, before calibration and with lines after it"""
  own = retrained("addition,abc")
  yield [step("main job", "", subject(quickstart.get_config()))]
  yield [
    step("retraining", "dense", own),
    step("retraining", "lines", own, open_heads=own.open_heads),
  ]


def fixed(setting: Setting):
  """training with lines at the papers' width, 61 digits"""
  own = retrained("addition,abc,fixed")
  yield [
    step("retraining at width 61", "dense", own, 4),
    step("retraining at width 61", "lines", own, 4, own.open_heads),
  ]


def sort(setting: Setting):
  """training of sorting's preset `none,best`"""
  own = subject(sorting.get_config("none,best"))
  yield [step("sorting", "", own, 20)]


def config(setting: Setting):
  """training of --config, if it is none of these"""
  known = (subject(quickstart.get_config()), papers())
  ours = lambda own: (own.experiment, own.train)
  check(
    all(ours(setting.own) != ours(other) for other in known),
    "--config is timed already",
  )
  own = setting.own
  yield [step("--config", "", own, open_heads=own.open_heads)]


def evaluate(setting: Setting):
  """a pass of evaluation, before and after calibration, at 60 digits"""
  vanilla = model(subject(quickstart.get_config()))
  lined = model(retrained("addition,abc"))
  yield [
    evaluation("evaluation", "vanilla", vanilla, 60, None),
    evaluation("evaluation", "lines", lined, 60, lined.open_heads),
  ]


def lengths(setting: Setting):
  """a pass of evaluation and a training step, by length, dense and gathered"""
  own = model(retrained("addition,abc"))
  for length in setting.lengths:
    yield [
      evaluation("by length", "dense", own, length, None),
      evaluation("by length", "gathered", own, length, own.open_heads),
    ]
    fields = {"data.train_length": length, "data.widths": ()}
    fields["train.batch_size"] = max(4000 // length, 1)
    long = retrained("addition,abc", **fields)
    made = step("by length", "training", long, 1, open_heads=long.open_heads)
    made.length = length
    yield [made]


def decoder(setting: Setting):
  """decoding, without and with a cache, and with a ring of rows along lines"""
  own = model(retrained("addition,abc"))
  for length in setting.lengths:
    ways = ("no cache", "cache", "ring of rows")
    yield [decoding(way, own, length) for way in ways]


def calibration(setting: Setting):
  """calibration: attention to 500 samples at one condition, and its lines"""
  made = quickstart.get_config()
  own = model(subject(made))

  def go():
    args = made.calibration, own, 10, 6
    means, _, _ = attention_statistics.collect(*args)
    for site, mean in means.items():
      calibrate.judge(made.calibration, own.experiment.task, [mean], site)

  samples = made.calibration.samples
  yield [Case("calibration", "", go, samples=samples, guess=3.0)]


def pytorch(setting: Setting):
  """training at the papers' shape in PyTorch and here, at equal threads"""
  check(
    importlib.util.find_spec("torch"),
    "PyTorch is not there: pip install 'lengthgen_jax[bench]'",
  )
  check(jax.default_backend() == "cpu", "compares on CPUs alone")
  from lengthgen_jax.benchmark import torch_step

  own = papers()
  shape = own.experiment.model.config
  part = own.experiment.lessons[0][0].parts[0]
  sample = lambda: own.experiment.sample(jax.random.key(0), "addition", part)
  batch = jax.jit(sample)()
  batch = [np.asarray(x) for x in (batch.source, batch.inputs, batch.target)]
  work = step("PyTorch", "", own, 1).cost().flops
  for threads in setting.threads:
    group = [step("PyTorch", f"ours, {threads} threads", own, 1)]
    group[0].threads = threads
    for kind, words in (
      ("stock", "torch.nn layers"),
      ("fast", "its fastest layers"),
    ):
      group.append(
        Case(
          "PyTorch",
          f"{words}, {threads} threads",
          torch_step.step(kind, shape, own.train, batch, threads),
          steps=1,
          samples=part.count,
          tokens=batch[1].size,
          guess=20.0 / threads,
          flops=work,
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
