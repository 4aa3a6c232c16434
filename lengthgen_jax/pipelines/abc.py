"""--mode=abc, end to end: interpolate, calibrate, retrain, certify, evaluate.

One workdir, stages that are skipped when done and resumed when cut off:
W/interpolate (a vanilla model), W/calibrate (its attention as lines), W/retrain
(a fresh model with those lines as its bias), W/certify_1 and so on (training on
inputs that a certificate found wrong).
"""

import pathlib

import jax
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax import hosts, memory, plots
from lengthgen_jax.config import build, stages
from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.pipelines import (
  attention_statistics,
  calibrate,
  counterexamples,
  evaluate,
  workdir,
)
from lengthgen_jax.results import records
from lengthgen_jax.training import loop


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Runs the stages that are not done yet; returns the exit code.

  Raises:
    UsageError: no seed interpolated, or no line passed.
  """
  check_config(config)
  first = workdir.prepare(config, folder / "interpolate", workdir.report)
  memory.check_training(first)
  evaluate.check_memory(config, first, longest=config.abc.vanilla_longest)
  workdir.open_workdir(config, folder, "abc")
  loop.train(first)
  models = calibrate.interpolated(config, first)
  if not workdir.bias_path(folder).exists():
    calibrate.calibrate(config, models, folder / "calibrate")
  hosts.meet("calibrated")
  _, second = workdir.retrained(config, folder)
  initial = None
  if config.retrain.start == "interpolated":
    initial = [m.params for m in models if m.seed in second.seeds]
  loop.train(second, initial)
  counterexamples.run(config.practice.rounds, config, folder)
  return evaluate.run(config, folder)


def check_config(config: ConfigDict) -> None:
  """UsageError for any mistake that a later stage would run into."""
  first = build.build(config)
  check(
    config.initial.kind == "random",
    f"initial.kind={config.initial.kind!r} is for --mode=train; with abc,"
    " choose 'random'",
  )
  calibrate.check_config(config, first)
  later = stages.retrain_config(config, config.seeds, None)
  try:
    second = build.build(later)
  except UsageError as error:
    raise UsageError(f"in the second stage, retrain.*: {error}") from error
  each = ["num_decoder_layers"] * (config.calibration.layers == "each")
  for name in ("kind", "num_heads", *each):
    before, after = config.model[name], later.model[name]
    check(
      before == after or name in each and before == 1,
      f"retrain.model.{name}={after!r}: lines go from head to head, so it must"
      f" be as in the first stage, {before!r}",
    )
  if config.retrain.start == "interpolated":
    check(
      first.model == second.model,
      "retrain.start='interpolated' needs the same model and positions in"
      " retrain.* as in the first stage; make them equal, or choose 'fresh'",
    )
    check(
      later.train.restarts == 0,
      "retrain.start='interpolated' has one start for each seed, so none can"
      " start again: set retrain.train.restarts=0",
    )
  counterexamples.check_config(later, "retrain.")
  try:
    _, lengths = first.task.parse(config.abc.example or first.task.usage)
  except ValueError as error:
    raise UsageError(f"abc.example: {error}") from error
  what = f"abc.example: {max(lengths)} {first.task.unit}"
  first.width(lengths, what, "choose one of at most {}")


def seconds(log: pathlib.Path) -> float:
  """What the gradient steps of a training took, all calls that it needed."""
  return sum(
    {row["step"]: row["seconds"] for row in records.read(log)}.values()
  )


def training_times(folder: pathlib.Path) -> str:
  """Seconds that both trainings took, all seeds together, and their ratio."""
  first, second = (
    seconds(folder / stage / "metrics.jsonl")
    for stage in ("interpolate", "retrain")
  )
  return (
    f"training: interpolation {first:.0f} s, retraining {second:.0f} s"
    f" ({second / first:.2f} of it), compilation included"
  )


def draw(config: ConfigDict, folder: pathlib.Path, first, second) -> list:
  """Calibrated biases, mean attention, one input's attention."""
  model, made = workdir.load(second, "last")[0], []
  width, length = attention_statistics.conditions(
    config.calibration, first.experiment
  )[-1]
  batch = attention_statistics.samples(
    first.experiment, model.seed, width, length, 0, 1
  )
  made += bias_figures(model, batch, folder / "figures", f"W={width}")
  attention = np.load(folder / "calibrate" / "attention.npz")
  for site in attention_statistics.sites(first.experiment):
    keys = batch.keys if site == "self" else batch.source_keys
    made.append(
      plots.matrices(
        attention[f"{site}_{model.seed}"],
        folder / "figures" / f"attention_mean_{site}.png",
        f"mean {site}-attention {config.calibration.quantity} of the"
        f" interpolated model, seed {model.seed}",
        plots.labels(first.experiment, site, keys),
      )
    )
  return made + attention_figures(config, first, folder / "figures")


def bias_figures(model, batch, folder, where: str) -> list:
  """The bias of a model's scaffold at a batch's rows and keys, by site."""
  biases = jax.jit(model.experiment.sites)(model.scaffold, batch).biases
  return [
    plots.matrices(
      np.asarray(biases[site].values)[:, 0],
      folder / f"bias_{site}.png",
      f"{site}-attention bias, seed {model.seed}, {where} (white: closed; each"
      " head its own scale)",
      plots.labels(
        model.experiment,
        site,
        batch.keys if site == "self" else batch.source_keys,
      ),
    )
    for site in attention_statistics.sites(model.experiment)
    if site in model.scaffold
  ]


def window_figures(model, length: int, folder: pathlib.Path) -> list:
  """The bias of a windowed model (ABS paper, figure 3) at a length."""
  experiment = model.experiment
  width, units = experiment.test_width(length), experiment.task.units(length)
  batch = attention_statistics.samples(
    experiment, model.seed, width, units, 0, 1
  )
  where = f"{length} {experiment.task.unit}"
  return bias_figures(model, batch, folder / "figures", where)


def attention_figures(config: ConfigDict, first, folder) -> list:
  """Heat maps of a vanilla model's last decoder layer on abc.example."""
  task = first.experiment.task
  text = config.abc.example or task.usage
  batch, layers = workdir.load(first, "best")[0].attention(text)
  columns = {"self": batch.inputs, "cross": batch.source}
  return [
    plots.matrices(
      weights[None],
      folder / f"attention_example_{site}.png",
      f"{site}-attention of the vanilla model's last decoder layer on {text}",
      task.symbols(columns[site][0]),
      task.symbols(batch.target[0]),
    )
    for site, weights in layers[-1].items()
  ]
