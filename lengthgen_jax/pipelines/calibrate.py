"""This is --mode=calibrate: it turns a model's attention into a bias file."""

import json
import pathlib
import time

import numpy as np
from ml_collections import ConfigDict

import lengthgen_jax
from lengthgen_jax import hosts
from lengthgen_jax.attention import calibration, candidates
from lengthgen_jax.attention.biases import file
from lengthgen_jax.errors import check
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines import attention_statistics, runs, workdir
from lengthgen_jax.pipelines.attention_statistics import judge
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
    width
    for width, _ in attention_statistics.conditions(
      config.calibration, experiment
    )
  }
  depends_on_width = (
    section.lines == "operand" and config.data.width == "natural"
  )
  is_grid = task.axes > 1
  field_name = (
    "calibration.lengths" if task.ragged or is_grid else "data.widths"
  )
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
  interpolating = [
    candidate
    for candidate in models
    if candidate.em >= threshold and not candidate.diverged
  ]
  for model in models:
    if model not in interpolating:
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


def calibrate(
  config: ConfigDict, models: list[Model], folder: pathlib.Path
) -> None:
  """Calibrates every seed and writes `folder`/bias.npz.

  Args:
    config: The config of the interpolated models.
    models: One model of each seed; one whose attention has no line is dropped.
    folder: Where bias.npz and attention.npz go.

  Raises:
    UsageError: No line passes in any head of any seed.
  """
  start = time.perf_counter()
  section, experiment = config.calibration, models[0].experiment
  judged_by_seed, arrays, scores = {}, {}, []
  for model in models:
    judged, seed_arrays = judge_seed(config, model)
    scores += [verdict.score.max() for _, verdict in judged.values()]
    if any(verdict.keep.any() for _, verdict in judged.values()):
      judged_by_seed[model.seed] = judged
      arrays |= seed_arrays
    else:
      runs.print_note(f"seed {model.seed}: no head has a line; dropped")
  check(
    judged_by_seed,
    f"calibration: no line passes calibration.kappa={section.kappa} in any head"
    f" (the best score is {max(scores):.2f}, of lines that calibration.reach"
    " and calibration.min_cells rule out too); lower it, or train longer",
  )
  bias = {
    site: calibration.compact(
      tested_lines,  # they are the same for all seeds
      [judged_sites[site][1] for judged_sites in judged_by_seed.values()],
      section.layers,
      section.empty_heads,
    )
    for site, (tested_lines, _) in judged.items()
  }
  metadata = {
    "version": lengthgen_jax.__version__,
    "seeds": list(judged_by_seed),
    "sites": experiment.site_segments,
    "conditions": attention_statistics.conditions(
      config.calibration, experiment
    ),
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
    f"calibrated {len(judged_by_seed)} of {len(models)} seeds in"
    f" {seconds:.0f} s"
  )


def judge_seed(config: ConfigDict, model: Model) -> tuple[dict, dict]:
  """Judges the lines of one model, and reports those that are kept.

  Returns:
    The result of `judge` for each attention site; and the arrays of
    attention.npz: the mean and the standard deviation of the attention under
    the last condition.
  """
  section, experiment = config.calibration, model.experiment
  pairs = attention_statistics.conditions(section, experiment)
  collected = [
    attention_statistics.collect(config.calibration, model, *pair)
    for pair in pairs
  ]
  means, deviations, solved = zip(*collected, strict=True)
  runs.print_note(
    f"seed {model.seed}: collected {section.samples} samples at each of"
    f" {len(pairs)} conditions, solved {min(solved):.1f} to"
    f" {max(solved):.1f} %"
  )
  judged, arrays = {}, {}
  for site in means[0]:
    site_conditions = [mean[site] for mean in means]
    judged[site] = judge(section, experiment.task, site_conditions, site)
    arrays[f"{site}_{model.seed}"] = np.asarray(site_conditions[-1].attention)
    arrays[f"{site}_{model.seed}_std"] = np.asarray(deviations[-1][site])
  describe(section, experiment, model.seed, judged)
  return judged, arrays


def describe(
  section: ConfigDict, experiment: Experiment, seed: int, judged: dict
) -> None:
  """Reports the kept lines of every head with their scores.

  Of a head without a line, the score of its best candidate is reported.
  """
  unit = {"zscore": "z", "mass": "times random"}[section.rule]
  for site, (tested_lines, verdict) in judged.items():
    names = experiment.site_segments[site]
    for n, h in np.ndindex(verdict.keep.shape[:2]):
      score, strength = verdict.score[n, h], verdict.strength[n, h]
      phrases = [
        f"{candidates.phrase([field[c] for field in tested_lines], names)}"
        f" ({strength[c]:.2f}, {unit} {score[c]:.1f})"
        for c in np.argsort(-strength, kind="stable")
        if verdict.keep[n, h, c]
      ]
      fallback = f"{section.empty_heads} (best {unit} {score.max():.1f})"
      runs.print_note(
        f"seed {seed} {site} layer {n} head {h}:"
        f" {'; '.join(phrases) or fallback}"
      )
