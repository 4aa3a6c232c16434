"""This is --mode=calibrate: it turns a model's attention into a bias file."""

import json
import pathlib
import time

import numpy as np
from ml_collections import ConfigDict

import lengthgen_jax
from lengthgen_jax import hosts, timing
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
    UsageError: The workdir is not one of --mode=train that can be calibrated.
  """
  workdir.check_trained(config, folder)
  check(
    not workdir.is_pipeline(folder),
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
    UsageError: They cannot be.
  """
  section, task = config.calibration, experiment.task
  check(
    task.of_digits or task.strides,
    f"task={task.name!r}: its outputs stand at no fixed place of the input, so"
    " there are no lines; calibrate a task that says its answer place by place",
  )
  check(
    not section.reach
    or (task.transducer or task.axes > 1)
    and section.lines == "operand",
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
  depends_on_width = (
    section.lines == "operand" and config.data.width == "natural"
  )
  by_length = task.ragged or task.axes > 1
  field_name = "calibration.lengths" if by_length else "data.widths"
  check(
    not depends_on_width or len(widths) > 1,
    "calibration.lines='operand' cannot tell an operand's ends apart at one"
    f" width: train with two or more {field_name}, like"
    f" {tuple(int(np.max([*widths])) + i for i in range(3))}",
  )


def interpolating_models(config: ConfigDict, run: loop.Run) -> list[Model]:
  """Returns the models whose best validation EM reaches abc.min_exact_match.

  Raises:
    UsageError: There is none.
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


@timing.phase("calibration")
def calibrate(
  config: ConfigDict, models: list[Model], folder: pathlib.Path
) -> None:
  """Calibrates every seed and writes bias.npz and attention.npz to a folder.

  A seed whose attention has no line is dropped.

  Raises:
    UsageError: No line passes in any head of any seed.
  """
  start = time.perf_counter()
  section, experiment = config.calibration, models[0].experiment
  lines, selections, arrays, scores = {}, {}, {}, []
  for model in models:
    seed_selections = {}
    for site, attention in _collect(section, model).items():
      # The candidates are the same for all seeds.
      lines[site], seed_selections[site] = attention_statistics.select_lines(
        section, experiment.task, attention, site
      )
      _report(section, model, site, lines[site], seed_selections[site])
      scores.append(seed_selections[site].score.max())
      arrays[f"{site}_{model.seed}"] = np.asarray(attention[-1].values)
    if any(selection.keep.any() for selection in seed_selections.values()):
      selections[model.seed] = seed_selections
    else:
      runs.print_note(f"seed {model.seed}: no head has a line; dropped")
  check(
    selections,
    f"calibration: no line passes calibration.kappa={section.kappa} in any head"
    f" (the best score is {max(scores):.2f}, of lines that calibration.reach"
    " and calibration.min_cells rule out too); lower it, or train longer",
  )
  bias = {
    site: calibration.compact(
      lines[site],
      [seed_selections[site] for seed_selections in selections.values()],
      section.layers,
      section.empty_heads,
    )
    for site in lines
  }
  metadata = {
    "version": lengthgen_jax.__version__,
    "seeds": list(selections),
    "sites": experiment.site_segments,
    "conditions": attention_statistics.conditions(section, experiment),
    "calibration": json.loads(section.to_json_best_effort()),
  }
  if hosts.is_primary():
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "attention.npz", **arrays)
    # The bias is written last, and atomically: if there is one, calibration is
    # done.
    file.save(folder / "bias.npz", bias, metadata)
  seconds = time.perf_counter() - start
  runs.print_note(
    f"calibrated {len(selections)} of {len(models)} seeds in {seconds:.0f} s"
  )


def _collect(
  section: ConfigDict, model: Model
) -> dict[str, list[calibration.MeanAttention]]:
  """Returns a model's mean attention under every condition, by site."""
  conditions = attention_statistics.conditions(section, model.experiment)
  means, solved = zip(
    *(
      attention_statistics.collect(section, model, condition, section.samples)
      for condition in conditions
    ),
    strict=True,
  )
  runs.print_note(
    f"seed {model.seed}: collected {section.samples} samples at each of"
    f" {len(conditions)} conditions, solved {min(solved):.1f} to"
    f" {max(solved):.1f} %"
  )
  return {site: [mean[site] for mean in means] for site in means[0]}


def _report(
  section: ConfigDict,
  model: Model,
  site: str,
  lines: Lines,
  selection: calibration.Selection,
) -> None:
  """Reports the kept lines of every head, or the best score of one without."""
  unit = {"zscore": "z", "mass": "times random"}[section.rule]
  names = model.experiment.site_segments[site]
  for n, h in np.ndindex(selection.keep.shape[:2]):
    score, strength = selection.score[n, h], selection.strength[n, h]
    kept = [
      f"{lines.take(c).describe(names)} ({strength[c]:.2f}, {unit}"
      f" {score[c]:.1f})"
      for c in np.argsort(-strength, kind="stable")
      if selection.keep[n, h, c]
    ]
    fallback = f"{section.empty_heads} (best {unit} {score.max():.1f})"
    runs.print_note(
      f"seed {model.seed} {site} layer {n} head {h}:"
      f" {'; '.join(kept) or fallback}"
    )
