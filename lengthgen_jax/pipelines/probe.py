"""This is --mode=probe: it measures and draws what a trained model does inside.

W/probes.jsonl has a row per probe, length and part of the model, of every seed.
W/figures/probes (with a folder per stage in a workdir of --mode=abc) has the
figures, which show single inputs and heads of the best seed.
"""

import dataclasses
import pathlib
import time
from collections.abc import Iterable
from functools import partial

import numpy as np

from lengthgen_jax.errors import UsageError, check, check_choice
from lengthgen_jax.evaluation import measures
from lengthgen_jax.evaluation.trained import Model, best
from lengthgen_jax.pipelines import (
  attention_statistics,
  evaluate,
  line_ablation,
  run_figures,
  runs,
  workdir,
)
from lengthgen_jax.pipelines.training_probes import passes
from lengthgen_jax.probes import figures
from lengthgen_jax.probes.activations import Mean, Seen, activation
from lengthgen_jax.probes.attention_maps import Input, check_size
from lengthgen_jax.probes.registry import (
  LINES,
  PROBES,
  Probe,
  chosen,
  measured,
)
from lengthgen_jax.probes.summary import summary
from lengthgen_jax.results import records
from lengthgen_jax.training.log import WATCHED

LONGEST = 100  # by default, greater lengths of config.eval are not probed


@dataclasses.dataclass(frozen=True)
class ProbeConfig:
  """A ProbeConfig has the fields of config.probe, see config/fields.py."""

  inputs: tuple
  random_inputs: int
  stage: str
  only: tuple[str, ...]
  figures: tuple[str, ...]
  lengths: tuple[int, ...]
  samples: int
  causal_length: int
  retrain: bool
  activations: tuple[str, ...]
  every: int


def run(full_config, folder: pathlib.Path) -> int:
  """Probes the models of a workdir; returns the exit code.

  Args:
    full_config: The whole config of the workdir.
    folder: The workdir.
  """
  stages = {
    trained_stage.name: trained_stage
    for trained_stage in workdir.trained_stages(full_config, folder)
  }
  stage_name = full_config.probe.stage or list(stages)[-1]
  check_choice("probe.stage", stage_name, stages)
  stage, figure_folder = stages[stage_name], folder / "figures" / "probes"
  probe_config = ProbeConfig(**stage.config.probe)
  models = stage.models()
  drawn_model = best(models)
  probes = chosen(probe_config.only, drawn_model, "probe.only", PROBES)
  wanted_figures = chosen(
    probe_config.figures, drawn_model, "probe.figures", figures.FIGURES
  )
  inputs = _inputs(probe_config, drawn_model, stage.config.eval.seed)
  _keep(probe_config.activations, inputs, folder / "activations.npz")
  rows = []
  for model in models:
    rows += _rows(stage, model, probe_config, probes, len(full_config.seeds))
  if probe_config.retrain:
    check(LINES.holds(drawn_model), f"probe.retrain is for {LINES.words}")
    rows += _retrained(
      stage, folder, drawn_model, probe_config, len(full_config.seeds)
    )
  records.merge(folder / "probes.jsonl", rows)
  summary_lines = summary(rows, drawn_model.seed)
  print("\n".join(summary_lines))
  runs.print_note(f"drawing {', '.join(wanted_figures)}")
  shown = figures.Shown(
    f"{stage.config.task}, {stage.config.method} ({stage_name}), seed"
    f" {drawn_model.seed}, step {drawn_model.step}",
    inputs,
    rows,
    drawn_model.seed,
    _names(probe_config, drawn_model),
    summary_lines,
    _logs(stages.values()),
  )
  start = time.perf_counter()
  pipeline = workdir.is_pipeline(folder)
  figure_paths = figures.draw(
    wanted_figures,
    shown,
    figure_folder / stage_name if pipeline else figure_folder,
  )
  seconds = time.perf_counter() - start
  runs.print_note(f"{len(figure_paths)} figures; {seconds:.0f} s")
  print(f"rows: {folder / 'probes.jsonl'}")
  print(f"figures: {', '.join(map(str, figure_paths))}")
  return 0


def _inputs(probe_config: ProbeConfig, model: Model, seed: int) -> list[Input]:
  """Returns the inputs to draw: those of probe.inputs, and random ones.

  If config.probe names neither, the one that the papers show is drawn.

  Raises:
    UsageError: One is no input of the task, or too long for the model or for a
      figure.
  """
  experiment, task, inputs = model.experiment, model.experiment.task, []
  for text in map(
    str,
    probe_config.inputs
    or (task.figure_input,) * (not probe_config.random_inputs),
  ):
    try:
      lengths = task.parse(text)[1]
    except ValueError as error:
      raise UsageError(f"probe.inputs: {error}") from error
    longest = max(lengths)
    subject = f"probe.inputs: {longest} {task.unit}"
    width = experiment.width(lengths, subject, "this model takes at most {}")
    experiment.check_scaffold(width, model.scaffold)
    inputs.append(Input(text, Seen(model, model.typed(text), 1, longest)))
  for number in range(probe_config.random_inputs):
    length = experiment.train_length
    (seen,) = passes(model, length, 1, seed=seed, first=number)
    example = seen.at
    tokens = (
      example.inputs[0, : example.prompt_length[0]]
      if example.source is None
      else example.source[0]
    )
    separator = "" if task.of_digits else " "
    inputs.append(Input(separator.join(task.symbols(tokens)), seen))
  for example in inputs:
    check_size(example)
  return inputs


def _keep(
  names: tuple[str, ...], inputs: list[Input], path: pathlib.Path
) -> None:
  """Writes the named activations of the inputs to draw, if there are names."""
  arrays = {
    f"{i}.{name}": activation(example.seen.acts, name)
    for name in names
    for i, example in enumerate(inputs)
  }
  if arrays:
    np.savez_compressed(path, **arrays)
    print(f"activations: {path}")


def _rows(
  stage: workdir.Stage,
  model: Model,
  probe_config: ProbeConfig,
  probes: dict[str, Probe],
  num_seeds: int,
) -> list[dict]:
  """Returns the rows of all probes of one seed."""
  config, task = stage.config, model.experiment.task
  train_length = model.experiment.train_length
  usual_lengths = [n for n in config.eval.lengths if n <= LONGEST] or [
    train_length
  ]
  base = evaluate.row_conditions(config, model, stage.name, num_seeds)
  run_passes = partial(
    passes, model, samples=probe_config.samples, seed=config.eval.seed
  )
  lines = partial(
    attention_statistics.strongest_lines,
    config.calibration,
    model,
    probe_config.samples,
  )
  causal_length = probe_config.causal_length or train_length
  plan = [
    (n, True, {"exact": False}) for n in probe_config.lengths or usual_lengths
  ]
  plan.append((causal_length, False, {"lines": lines}))
  rows, start = [], time.perf_counter()
  for length, by_length, pass_options in plan:
    selected = {
      n: probe for n, probe in probes.items() if probe.by_length == by_length
    }
    if not selected:
      continue
    means_by_probe = measured(
      selected, run_passes(length=length, **pass_options)
    )
    conditions = {"length": length, "bits": task.bits(length)}
    conditions["test_set"] = next(iter(task.test_sets))
    rows += [
      base | conditions | _row(name, mean)
      for name, means in means_by_probe.items()
      for mean in means.values()
    ]
    seconds = time.perf_counter() - start
    runs.print_note(
      f"seed {model.seed}, {length} {task.unit}: {', '.join(selected)};"
      f" {seconds:.0f} s so far"
    )
  return rows


def _retrained(
  stage: workdir.Stage,
  folder: pathlib.Path,
  model: Model,
  probe_config: ProbeConfig,
  num_seeds: int,
) -> list[dict]:
  """Trains a model again without each line; returns the rows of the models."""
  config, task = stage.config, model.experiment.task
  length = probe_config.causal_length or model.experiment.train_length
  base = evaluate.row_conditions(config, model, stage.name, num_seeds)
  base |= {"length": length, "bits": task.bits(length)}
  base["test_set"] = next(iter(task.test_sets))
  pass_options = {
    "length": length,
    "samples": probe_config.samples,
    "seed": config.eval.seed,
  }
  means = line_ablation.retrained(stage.runs[0], folder, model, pass_options)
  return [base | _row("retrained_without_line", mean) for mean in means]


def _row(metric: str, mean: Mean) -> dict:
  """Returns the row of a mean, without the fields of `evaluate.row_base`."""
  row = measures.measured(metric, mean.value, int(mean.count), True)
  names = "part", "layer", "head", "line", "position"
  row |= {name: getattr(mean, name) for name in names}
  if mean.success:
    row["correct"] = int(mean.total)
  if mean.by_position is not None:
    rates = np.asarray(mean.by_position) / mean.count
    row["by_position"] = [round(float(rate), 6) for rate in rates]
  return row


def _names(
  probe_config: ProbeConfig, model: Model
) -> dict[str | None, list[str]]:
  """Returns the labels of the patched rows, of their sources and the outputs.

  The keys are those that ablation_charts.patches looks up: None for the
  decoder's inputs, "source" and "outputs".
  """
  length = probe_config.causal_length or model.experiment.train_length
  batch = next(passes(model, length, probe_config.samples)).at
  make_labels = partial(run_figures.position_labels, model.experiment)
  names = {None: make_labels("self", batch.keys)}
  if batch.source is not None:
    names["source"] = make_labels("cross", batch.source_keys)
  scored_T = batch.weight[0] > 0
  outputs = run_figures.position_labels(model.experiment, "self", batch.rows)
  names["outputs"] = [
    name for name, is_scored in zip(outputs, scored_T, strict=True) if is_scored
  ]
  return names


def _logs(
  stages: Iterable[workdir.Stage],
) -> dict[str, tuple[list[dict], list[dict]]]:
  """Returns the logs of the stages whose training was watched by probes.

  Returns:
    By stage, the rows of metrics.jsonl and the rows of the probes.
  """
  logs = {}
  for stage in stages:
    folder = stage.runs[-1].folder
    rows = records.read(folder / WATCHED)
    if rows:
      logs[stage.name] = records.read(folder / "metrics.jsonl"), rows
  return logs
