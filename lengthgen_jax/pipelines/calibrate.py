"""This is --mode=calibrate: it turns a model's attention into a bias file."""

import json
import pathlib
import time

import numpy as np
from ml_collections import ConfigDict

import lengthgen_jax
from lengthgen_jax import hosts, stopwatch
from lengthgen_jax.attention import calibration
from lengthgen_jax.attention.biases import file
from lengthgen_jax.attention.lines import Lines
from lengthgen_jax.errors import check
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines import attention_statistics, runs, workdir
from lengthgen_jax.training import loop


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Writes W/calibrate/bias.npz from a workdir's models; returns the exit code.

  Raises:
    UsageError: the workdir is not one of --mode=train that can be calibrated.
  """
  workdir.check_trained(config, folder)
  check(
    not workdir.is_abc(folder),
    f"--workdir={folder}: --mode=abc calibrates by itself; name a workdir of"
    " --mode=train",
  )
  trained_run = runs.make_run(config, folder)
  check_config(config, trained_run.experiment)
  calibrate(
    config, interpolating_models(config, trained_run), folder / "calibrate"
  )
  print(f"bias: {workdir.bias_path(folder)}")
  return 0


def check_config(config: ConfigDict, experiment: Experiment) -> None:
  """Checks that the models of an experiment can be calibrated.

  Raises:
    UsageError: the task has no lines, or a field of the config stands in the
      way.
  """
  section, task = config.calibration, experiment.task
  check(
    task.of_digits or task.strides,
    f"task={task.name!r}: its outputs stand at no fixed place of the input, so"
    " there are no lines; calibrate a task that says its answer place by place",
  )
  has_places = task.transducer or task.axes > 1
  check(
    not section.reach or has_places and section.lines == "operand",
    f"calibration.reach={section.reach} is for calibration.lines='operand' and"
    f" tasks that are transducers, and {task.name} with"
    f" {section.lines!r} lines is not that; choose 0",
  )
  for length in section.lengths:
    check(
      length <= config.data.train_length,
      f"calibration.lengths: {length} exceeds"
      f" data.train_length={config.data.train_length}",
    )
  widths = {
    condition.width
    for condition in attention_statistics.conditions(section, experiment)
  }
  check(
    widths,
    f"calibration.lengths={tuple(section.lengths)}: no training width has these"
    f" lengths; choose from {experiment.data[0].widths}, or ()",
  )
  needs_two_widths = (
    section.lines == "operand" and config.data.width == "natural"
  )
  by_length = task.ragged or task.axes > 1
  field_name = "calibration.lengths" if by_length else "data.widths"
  largest = int(np.max([*widths]))
  check(
    not needs_two_widths or len(widths) > 1,
    "calibration.lines='operand' cannot tell an operand's ends apart at one"
    f" width: train with two or more {field_name}, like"
    f" {(largest, largest + 1, largest + 2)}",
  )


def interpolating_models(config: ConfigDict, run: loop.Run) -> list[Model]:
  """Returns the models whose best validation EM reaches abc.min_exact_match.

  Raises:
    UsageError: there is none.
  """
  models = runs.load(run, "best")
  threshold = config.abc.min_exact_match
  interpolating = []
  for model in models:
    if model.em >= threshold and not model.diverged:
      interpolating.append(model)
    else:
      runs.print_note(
        f"seed {model.seed} did not interpolate (EM {100 * model.em:.1f} %,"
        f" abc.min_exact_match={threshold}); dropped"
      )
  best_exact_match = max(model.em for model in models)
  check(
    interpolating,
    "no seed interpolated: the best validation EM is"
    f" {100 * best_exact_match:.1f} %, below abc.min_exact_match={threshold};"
    " train longer, or lower it with"
    f" --config.abc.min_exact_match={max(best_exact_match - 0.005, 0.0):.3f}",
  )
  return interpolating


@stopwatch.phase("calibration")
def calibrate(
  config: ConfigDict, models: list[Model], folder: pathlib.Path
) -> None:
  """Calibrates every seed and writes bias.npz and attention.npz to a folder.

  A seed whose attention has no line is dropped.

  Raises:
    UsageError: no line passes in any head of any seed.
  """
  start = time.perf_counter()
  section, experiment = config.calibration, models[0].experiment
  # By site, the candidate lines, which are the same for all seeds.
  candidates: dict[str, Lines] = {}
  selections_by_seed, best_scores, mean_attention = {}, [], {}
  for model in models:
    selections = {}
    for site, attention in _mean_attention(section, model).items():
      candidates[site], selections[site] = attention_statistics.select_lines(
        section, experiment.task, attention, site
      )
      _print_lines(section, model, site, candidates[site], selections[site])
      best_scores.append(selections[site].score.max())
      mean_attention[f"{site}_{model.seed}"] = np.asarray(attention[-1].values)
    if any(selection.keep.any() for selection in selections.values()):
      selections_by_seed[model.seed] = selections
    else:
      runs.print_note(f"seed {model.seed}: no head has a line; dropped")
  check(
    selections_by_seed,
    f"calibration: no line passes calibration.kappa={section.kappa} in any head"
    f" (the best score is {max(best_scores):.2f}, of lines that"
    " calibration.reach and calibration.min_cells rule out too); lower it, or"
    " train longer",
  )
  bias = {
    site: calibration.compact(
      lines,
      [selections[site] for selections in selections_by_seed.values()],
      section.layers,
      section.empty_heads,
    )
    for site, lines in candidates.items()
  }
  metadata = {
    "version": lengthgen_jax.__version__,
    "seeds": list(selections_by_seed),
    "sites": experiment.site_segments,
    "conditions": attention_statistics.conditions(section, experiment),
    "calibration": json.loads(section.to_json_best_effort()),
  }
  if hosts.is_primary():
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "attention.npz", **mean_attention)
    # The bias is written last, and atomically: if there is one, calibration is
    # done.
    file.save(folder / "bias.npz", bias, metadata)
  seconds = time.perf_counter() - start
  runs.print_note(
    f"calibrated {len(selections_by_seed)} of {len(models)} seeds in"
    f" {seconds:.0f} s"
  )


def _mean_attention(
  section: ConfigDict, model: Model
) -> dict[str, list[calibration.MeanAttention]]:
  """Returns a model's mean attention under every condition, by site."""
  conditions = attention_statistics.conditions(section, model.experiment)
  attention, solved_percentages = attention_statistics.collect(
    section, model, conditions, section.samples
  )
  runs.print_note(
    f"seed {model.seed}: collected {section.samples} samples at each of"
    f" {len(conditions)} conditions, solved {min(solved_percentages):.1f} to"
    f" {max(solved_percentages):.1f} %"
  )
  return attention


def _print_lines(
  section: ConfigDict,
  model: Model,
  site: str,
  lines: Lines,
  selection: calibration.Selection,
) -> None:
  """Prints the kept lines of every head, or the best score of a head without
  any."""
  unit = {"zscore": "z", "mass": "times random"}[section.rule]
  segments = model.experiment.site_segments[site]
  for layer, head in np.ndindex(selection.keep.shape[:2]):
    keep, score, strength = (
      values[layer, head]
      for values in (selection.keep, selection.score, selection.strength)
    )
    descriptions = [
      f"{lines.take(k).describe(segments)} ({strength[k]:.2f}, {unit}"
      f" {score[k]:.1f})"
      for k in np.argsort(-strength, kind="stable")
      if keep[k]
    ]
    without = f"{section.empty_heads} (best {unit} {score.max():.1f})"
    runs.print_note(
      f"seed {model.seed} {site} layer {layer} head {head}:"
      f" {'; '.join(descriptions) or without}"
    )
