"""This is --mode=evaluate: it measures how many answers and tokens are right at
every test length.

The results are rows of W/results.jsonl, a table and figures; with
eval.precisions also W/precision.jsonl.
"""

import itertools
import json
import pathlib
import time
from collections.abc import Iterator, Sequence

from ml_collections import ConfigDict

import lengthgen_jax
from lengthgen_jax import stopwatch
from lengthgen_jax.config.files import config_hash
from lengthgen_jax.construction import precision
from lengthgen_jax.evaluation import measures
from lengthgen_jax.evaluation.trained import EvalSpec, Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines import run_figures, runs, workdir
from lengthgen_jax.probes.figures import draw_precision
from lengthgen_jax.results import figures, records, tables


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Evaluates every stage that was trained in a workdir; returns the exit code.

  The vanilla models of --mode=abc are tested up to abc.vanilla_longest alone.
  It prints a table and draws figures of the results.

  Args:
    config: the config of the workdir.
    folder: the workdir.

  Raises:
    UsageError: nothing was trained there, or with another config; or
      results.jsonl cannot be read.
  """
  rows, models, measured_rows = [], [], {}
  stages = workdir.trained_stages(config, folder)
  for stage in stages:
    is_vanilla = stage.name == "interpolate"
    longest = config.abc.vanilla_longest if is_vanilla else float("inf")
    if min(config.eval.lengths) <= longest:
      models = stage.models
      rows += evaluate(
        stage,
        models,
        folder,
        longest=longest,
        measured_rows=measured_rows,
      )
      rows += certified_rows(folder, models, stage.name)
  print(tables.run_table(rows))
  if workdir.is_abc(folder):
    print(run_figures.training_times(folder))
  figure_paths = draw_figures(config, folder, stages, models, rows)
  print(f"rows: {folder / 'results.jsonl'}")
  print(f"figures: {', '.join(map(str, figure_paths))}")
  return 0


@stopwatch.phase("figures")
def draw_figures(
  config: ConfigDict,
  folder: pathlib.Path,
  stages: list[workdir.Stage],
  models: list[Model],
  rows: list[dict],
) -> list[pathlib.Path]:
  """Draws the figures of a workdir, and returns their paths; with
  eval.precisions it also measures, and writes W/precision.jsonl.

  Args:
    config: the config of the workdir.
    folder: the workdir.
    stages: its stages.
    models: the models of the last stage.
    rows: the result rows of all stages.
  """
  extra_figures = []
  if workdir.is_abc(folder):
    extra_figures = run_figures.draw_calibration(
      config, folder, stages[0].runs[0], stages[1].models[0]
    )
  elif config.bias.kind == "window" and models[0].experiment.task.axes == 1:
    extra_figures = run_figures.draw_window(models[0], folder)
  if config.eval.precisions:
    experiment = models[0].experiment
    extra_figures.append(measure_precisions(config, folder, experiment))
  return figures.draw(rows, folder / "figures") + extra_figures


def measure_precisions(
  config: ConfigDict, folder: pathlib.Path, experiment: Experiment
) -> pathlib.Path:
  """Writes W/precision.jsonl, and returns the path of a figure of it.

  Its rows say how long the lists are that the construction of Theorem 5.1 of
  the task hinting paper sorts if its parameters and activations are rounded to
  a few significant bits; see `precision.longest_lists`.
  """
  rows = precision.longest_lists(
    experiment, config.eval.precisions, config.initial.longest
  )
  text = "".join(json.dumps(row) + "\n" for row in rows)
  records.write_text(folder / "precision.jsonl", text)
  title = f"Theorem 5.1's construction, alphabet {config.sort.alphabet}"
  path = folder / "figures" / "longest_by_bits.png"
  return draw_precision(rows, path, title)


def certified_rows(
  folder: pathlib.Path, models: list[Model], stage: str
) -> list[dict]:
  """Returns the rows of results.jsonl about certificates of these models.

  Rows of a seed whose certificate does not hold for this model are left out; if
  one says "right", a note is printed.

  Args:
    folder: the workdir.
    models: one model of each seed.
    stage: the name of their stage.
  """
  valid_rows, certificates = [], workdir.valid_certificates(models, folder)
  rows = records.read_results(folder / "results.jsonl")
  for model in models:
    model_rows = [
      row
      for row in rows
      if row["metric"] == "certified"
      and (row["stage"], row["seed"]) == (stage, model.seed)
      and row["step"] == model.step
    ]
    if model.seed in certificates:
      valid_rows += model_rows
    elif any(row["value"] for row in model_rows):
      runs.print_note(
        f"{folder / workdir.CERTIFICATE}: has no certificate that holds for"
        f" seed {model.seed} with these parameters and settings;"
        " run --mode=certify"
      )
  return valid_rows


@stopwatch.phase("tests")
def evaluate(
  stage: workdir.Stage,
  models: list[Model],
  folder: pathlib.Path,
  *,
  longest: float = float("inf"),
  measured_rows: dict | None = None,
) -> list[dict]:
  """Evaluates every seed, and merges the rows into `folder`/results.jsonl.

  Args:
    stage: what was trained; the `eval` section of its config says what to test.
    models: one model of each seed.
    folder: where results.jsonl is.
    longest: greater lengths are left out.
    measured_rows: the rows that were measured so far, by seed and checksum of
      the model; new ones are added. Seeds that need no finetuning have the same
      parameters in a later stage, and are not measured again.

  Returns:
    The rows of all seeds; unless eval.replace is set, earlier ones of more
    samples stay in place of new ones.

  Raises:
    UsageError: results.jsonl cannot be read.
  """
  # A file that cannot be read is refused before anything is measured.
  records.read_results(folder / "results.jsonl")
  config, rows = stage.config, []
  measured_rows = {} if measured_rows is None else measured_rows
  for model in models:
    base = row_conditions(stage, model)
    key = model.seed, model.checksum
    if key not in measured_rows:
      seed_rows = [
        row
        for spec in eval_specs(config, model, longest)
        for row in measure(config, model, spec)
      ]
      measured_rows[key] = seed_rows + frontiers(
        config, model, seed_rows, longest
      )
    rows += [base | row for row in measured_rows[key]]
  path = folder / "results.jsonl"
  merged = records.merge(path, rows, keep_larger=not config.eval.replace)
  kept = sum(row is not new for row, new in zip(merged, rows, strict=True))
  if kept:
    runs.print_note(
      f"{path}: kept {kept} earlier rows of more samples;"
      " --config.eval.replace=True replaces them"
    )
  return merged


def measure(config: ConfigDict, model: Model, spec: EvalSpec) -> list[dict]:
  """Returns the rows of a test, and prints its exact match.

  The rows lack the fields of `row_conditions`. Measured are exact match and
  accuracies, and with config.eval.free_running what free decoding shows.
  """
  start, task = time.perf_counter(), model.experiment.task
  rows = measures.test_rows(model, spec, config.eval.free_running)
  exact_match_row = next(row for row in rows if row["metric"] == "em")
  speed = exact_match_row["n"] / (time.perf_counter() - start)
  runs.print_note(
    f"seed {model.seed}, {spec.name}, {spec.length} {task.unit}: EM"
    f" {100 * exact_match_row['value']:.1f} % of {exact_match_row['n']}"
    f" ({speed:.0f} samples/s with compilation)"
  )
  bits = task.bits(spec.length)
  conditions = {"test_set": spec.name, "length": spec.length, "bits": bits}
  if spec.test_set not in config.eval.test_sets:
    conditions["stress"] = True
  return [conditions | row for row in rows]


def frontiers(
  config: ConfigDict, model: Model, rows: list[dict], longest: float
) -> list[dict]:
  """Returns a row of the frontier, the longest length up to which the model is
  right, for each test set that is sampled at every length.

  Args:
    config: the whole config; there are no such rows unless eval.frontier is
      set.
    model: a trained model.
    rows: the model's rows from `measure`, which are not measured again.
    longest: greater lengths are not tried.
  """
  section, frontier_rows = config.eval, []
  if not section.frontier:
    return []
  single_input_sets = model.experiment.task.single_input_sets
  bound = int(min(section.frontier, longest))
  for spec in _specs(config, model, section.test_sets, [bound]):
    # Left out are variants, which do not exist at every length (their name is
    # not that of a test set), and test sets of one input at each length.
    if spec.name not in section.test_sets or spec.name in single_input_sets:
      continue
    spec = spec._replace(samples=section.frontier_samples, count=None)
    row = measures.frontier(model, spec, rows)
    frontier_rows.append(
      {"test_set": spec.name, "length": None, "bits": None} | row
    )
    runs.print_note(
      f"seed {model.seed}, {spec.name}: exact match of at least"
      f" {100 * measures.COMPLETE_EM:.0f} % up to {row['value']:.0f}"
      f" {model.experiment.task.unit} (tried up to {bound})"
    )
  return frontier_rows


def eval_specs(
  config: ConfigDict, model: Model, longest: float = float("inf")
) -> list[EvalSpec]:
  """Returns the tests that config.eval names, at lengths up to `longest`; of
  the model, only its experiment counts."""
  section, task = config.eval, model.experiment.task
  lengths = [length for length in section.lengths if length <= longest]
  return list(_specs(config, model, task.tested_sets(section), lengths))


def _specs(
  config: ConfigDict,
  model: Model,
  test_sets: Sequence[str],
  lengths: Sequence[int],
) -> Iterator[EvalSpec]:
  """Yields the tests of some test sets at some lengths."""
  section, task = config.eval, model.experiment.task
  samples_by_length = dict(
    zip(section.lengths, itertools.cycle(section.samples), strict=False)
  )
  for test_set, length in itertools.product(test_sets, lengths):
    samples = samples_by_length.get(length, 1)
    if test_set not in section.test_sets:
      samples = min(samples, section.stress_samples)
    count = task.num_test_samples(length, samples)
    if test_set in task.single_input_sets:
      count = 1
    for name, arguments in task.variants(test_set, section, length):
      yield EvalSpec(
        name,
        test_set,
        arguments,
        length,
        samples,
        section.seed,
        section.memory_mb,
        count,
      )


def row_conditions(stage: workdir.Stage, model: Model) -> dict:
  """Returns the fields that all result rows of a model share: its task, how it
  was trained, and how it is tested."""
  config, experiment = stage.config, model.experiment
  task = experiment.task
  natural = not task.ragged and config.data.width == "natural"
  padded = natural and task.axes == 1
  data_kind = "endless" if task.ragged else config.data.numbers
  return {
    "task": config.task,
    "method": " ".join([config.method, *config.overrides]),
    "stage": stage.name,
    "family": experiment.kind,
    "width": config.data.width,
    "slack": task.slack if padded else None,
    "train_length": config.data.train_length,
    "train_data": str(config.data.size or data_kind),
    "seed": model.seed,
    "seeds_asked": stage.num_seeds,
    "eval_seed": config.eval.seed,
    "unit": task.unit,
    "step": model.step,
    "checkpoint": str(config.eval.checkpoint),
    "stopped_at": model.stopped_at,
    "leak": config.bias.allow_leak,
    "normalizer": experiment.model.config.attention.label,
    "segments": config.positions.segments,
    "prune": bool(config.prune.enabled and model.scaffold),
    "config_hash": config_hash(config),
    "version": lengthgen_jax.__version__,
    "position": None,
  }
