"""--mode=probe: what a trained model does inside, as rows and figures.

W/probes.jsonl has a row per probe, length and place in the model, of every
seed; W/figures/probes (of --mode=abc: a folder per stage) has the figures,
which show single inputs and heads of the best seed.
"""

import dataclasses
import pathlib
import time
from functools import partial

import numpy as np

from lengthgen_jax import plots
from lengthgen_jax.errors import UsageError, check, check_choice
from lengthgen_jax.evaluation import measures
from lengthgen_jax.evaluation.trained import Model, best
from lengthgen_jax.pipelines import (
  attention_statistics,
  evaluate,
  line_ablation,
  workdir,
)
from lengthgen_jax.pipelines.training_probes import passes
from lengthgen_jax.probes import figures
from lengthgen_jax.probes.activations import Seen, activation
from lengthgen_jax.probes.attention_maps import Input, check_size
from lengthgen_jax.probes.registry import LINES, PROBES, chosen, measured
from lengthgen_jax.probes.summary import summary
from lengthgen_jax.results import records
from lengthgen_jax.training.loop import WATCHED

LONGEST = 100  # of eval.lengths, those that are probed unless asked for


@dataclasses.dataclass(frozen=True)
class ProbeConfig:
  """What is wanted: the fields of config.probe, explained there."""

  inputs: tuple
  random_inputs: int
  stage: str
  only: tuple
  figures: tuple
  lengths: tuple
  samples: int
  causal_length: int
  retrain: bool
  activations: tuple
  every: int


def run(whole, folder: pathlib.Path) -> int:
  """Probes a workdir; `whole` is its config. Returns the exit code."""
  stages = {own.name: own for own in workdir.trainings(whole, folder)}
  name = whole.probe.stage or list(stages)[-1]
  check_choice("probe.stage", name, stages)
  stage, out = stages[name], folder / "figures" / "probes"
  how = ProbeConfig(**stage.config.probe)
  models = stage.models()
  drawn = best(models)
  probes = chosen(how.only, drawn, "probe.only", PROBES)
  wanted = chosen(how.figures, drawn, "probe.figures", figures.FIGURES)
  inputs = _inputs(how, drawn, stage.config.eval.seed)
  _keep(how.activations, inputs, folder / "activations.npz")
  rows = []
  for model in models:
    rows += _rows(stage, model, how, probes, len(whole.seeds))
  if how.retrain:
    check(LINES.holds(drawn), f"probe.retrain is for {LINES.words}")
    rows += _retrained(stage, folder, drawn, how, len(whole.seeds))
  records.merge(folder / "probes.jsonl", rows)
  words = summary(rows, drawn.seed)
  print("\n".join(words))
  workdir.report(f"drawing {', '.join(wanted)}")
  shown = figures.Shown(
    f"{stage.config.task}, {stage.config.method} ({name}), seed {drawn.seed},"
    f" step {drawn.step}",
    inputs,
    rows,
    drawn.seed,
    _names(how, drawn),
    words,
    _logs(stages.values()),
  )
  clock = time.perf_counter()
  pipeline = workdir.is_pipeline(folder)
  made = figures.draw(wanted, shown, out / name if pipeline else out)
  seconds = time.perf_counter() - clock
  workdir.report(f"{len(made)} figures; {seconds:.0f} s")
  print(f"rows: {folder / 'probes.jsonl'}")
  print(f"figures: {', '.join(map(str, made))}")
  return 0


def _inputs(how: ProbeConfig, model: Model, seed: int) -> list[Input]:
  """What is drawn: what was typed (by default the papers' own), and random
  inputs.

  Raises:
    UsageError: one is no input of the task, or too long for the model or for a
      figure.
  """
  experiment, task, found = model.experiment, model.experiment.task, []
  for text in map(
    str, how.inputs or (task.pictured,) * (not how.random_inputs)
  ):
    try:
      lengths = task.parse(text)[1]
    except ValueError as error:
      raise UsageError(f"probe.inputs: {error}") from error
    longest = max(lengths)
    what = f"probe.inputs: {longest} {task.unit}"
    width = experiment.width(lengths, what, "this model takes at most {}")
    experiment.check_scaffold(width, model.scaffold)
    found.append(Input(text, Seen(model, model.typed(text), 1, longest)))
  for number in range(how.random_inputs):
    at = experiment.train_length
    (seen,) = passes(model, at, 1, seed=seed, first=number)
    own = seen.at
    held = (
      own.inputs[0, : own.items[0]] if own.source is None else own.source[0]
    )
    between = "" if task.of_digits else " "
    found.append(Input(between.join(task.symbols(held)), seen))
  for own in found:
    check_size(own)
  return found


def _keep(names: tuple, inputs: list[Input], path) -> None:
  """Writes activations of the inputs that are drawn, if any are named."""
  found = {
    f"{i}.{name}": activation(own.seen.acts, name)
    for name in names
    for i, own in enumerate(inputs)
  }
  if found:
    np.savez_compressed(path, **found)
    print(f"activations: {path}")


def _rows(stage, model: Model, how: ProbeConfig, probes: dict, asked: int):
  """Rows of all probes of one seed."""
  config, task = stage.config, model.experiment.task
  train_length = model.experiment.train_length
  usual = [n for n in config.eval.lengths if n <= LONGEST] or [train_length]
  base = evaluate.row_base(config, model, stage.name, asked)
  see = partial(passes, model, samples=how.samples, seed=config.eval.seed)
  lines = partial(
    attention_statistics.strongest, config.calibration, model, how.samples
  )
  once = how.causal_length or train_length
  plan = [(n, True, {"exact": False}) for n in how.lengths or usual]
  plan.append((once, False, {"lines": lines}))
  rows, clock = [], time.perf_counter()
  for length, by_length, more in plan:
    own = {n: p for n, p in probes.items() if p.by_length == by_length}
    if not own:
      continue
    found = measured(own, see(length=length, **more))
    at = {"length": length, "bits": task.bits(length)}
    at["test_set"] = next(iter(task.test_sets))
    rows += [
      base | at | _row(name, mean)
      for name, means in found.items()
      for mean in means.values()
    ]
    seconds = time.perf_counter() - clock
    workdir.report(
      f"seed {model.seed}, {length} {task.unit}: {', '.join(own)};"
      f" {seconds:.0f} s so far"
    )
  return rows


def _retrained(stage, folder, model: Model, how: ProbeConfig, asked: int):
  """Rows of models that were trained without a line."""
  config, task = stage.config, model.experiment.task
  length = how.causal_length or model.experiment.train_length
  base = evaluate.row_base(config, model, stage.name, asked)
  base |= {"length": length, "bits": task.bits(length)}
  base["test_set"] = next(iter(task.test_sets))
  see = {"length": length, "samples": how.samples, "seed": config.eval.seed}
  found = line_ablation.retrained(stage.runs[0], folder, model, see)
  return [base | _row("retrained_without_line", mean) for mean in found]


def _row(metric: str, mean) -> dict:
  """A row of what was measured, without its conditions."""
  row = measures.measured(metric, mean.value, int(mean.count), True)
  names = "part", "layer", "head", "line", "position"
  row |= {name: getattr(mean, name) for name in names}
  if mean.success:
    row["correct"] = int(mean.total)
  if mean.by_position is not None:
    rates = np.asarray(mean.by_position) / mean.count
    row["by_position"] = [round(float(x), 6) for x in rates]
  return row


def _names(how: ProbeConfig, model: Model) -> dict:
  """Names of the rows and outputs that are patched, see charts.patches."""
  length = how.causal_length or model.experiment.train_length
  at = next(passes(model, length, how.samples)).at
  own = partial(plots.labels, model.experiment)
  names = {None: own("self", at.keys)}
  if at.source is not None:
    names["source"] = own("cross", at.source_keys)
  scored = at.weight[0] > 0
  outputs = plots.labels(model.experiment, "self", at.rows)
  names["outputs"] = [
    name for name, is_asked in zip(outputs, scored, strict=True) if is_asked
  ]
  return names


def _logs(stages) -> dict:
  """What was logged of runs that were watched, by stage."""
  found = {}
  for stage in stages:
    folder = stage.runs[-1].folder
    rows = records.read(folder / WATCHED)
    if rows:
      found[stage.name] = records.read(folder / "metrics.jsonl"), rows
  return found
