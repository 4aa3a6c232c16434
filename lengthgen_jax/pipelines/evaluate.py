"""This is --mode=evaluate: it measures how many answers and tokens are right at
every test length.

The results are rows of W/results.jsonl, a table and figures.
"""

import itertools
import math
import pathlib

from ml_collections import ConfigDict

import lengthgen_jax
from lengthgen_jax import hosts, stopwatch
from lengthgen_jax.config.files import config_hash
from lengthgen_jax.evaluation import measures
from lengthgen_jax.evaluation.trained import EvalSpec, Model
from lengthgen_jax.pipelines import calibrate, workdir
from lengthgen_jax.probes.activations import observations
from lengthgen_jax.probes.figures import draw_biases
from lengthgen_jax.results import figures, records, tables


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Evaluates every stage that was trained in a workdir, prints a table and
  draws figures; returns the exit code.

  The vanilla models of --mode=abc are tested up to abc.vanilla_longest alone.
  """
  longest = {"interpolate": config.abc.vanilla_longest}
  stages = [
    workdir.load_stage(config, folder, name)
    for name in workdir.stage_names(config, folder)
    if min(config.eval.lengths) <= longest.get(name, math.inf)
  ]
  rows, measured = [], {}
  for stage in stages:
    rows += evaluate(stage, folder, longest.get(stage.name, math.inf), measured)
    rows += [
      certified_row(stage, model, stage.certificates[model.seed])
      for model in stage.models
      if model.seed in stage.certificates
    ]
  print(tables.run_table(rows))
  paths = figures.draw(rows, folder / "figures")
  paths += draw_figures(config, folder, stages[-1])
  print(f"rows: {folder / 'results.jsonl'}")
  print(f"figures: {', '.join(map(str, paths))}")
  return 0


@stopwatch.phase("figures")
def draw_figures(
  config: ConfigDict, folder: pathlib.Path, stage: workdir.Stage
) -> list[pathlib.Path]:
  """Draws the biases and attention of a workdir's last stage, and returns the
  paths."""
  model = stage.models[0]
  experiment = model.experiment
  if workdir.is_abc(folder):
    return calibrate.draw(config, folder, model)
  if config.bias.kind == "window" and experiment.task.axes == 1:
    # ABS paper, figure 3.
    (observation,) = observations(model, experiment.train_length, 1)
    return draw_biases(model, observation.batch, folder / "figures")
  return []


@stopwatch.phase("tests")
def evaluate(
  stage: workdir.Stage,
  folder: pathlib.Path,
  longest: float = math.inf,
  measured: dict | None = None,
) -> list[dict]:
  """Evaluates every seed at lengths up to `longest`, and merges the rows into
  the folder's results.jsonl; returns the rows of all seeds.

  Unless eval.replace is set, earlier rows of more samples stay in place of new
  ones. `measured` are the rows by seed and checksum of the model, to which new
  ones are added: a seed that needs no finetuning is not measured again."""
  path = folder / "results.jsonl"
  records.read_results(path)  # what cannot be read is refused before the tests
  config, rows = stage.config, []
  measured = {} if measured is None else measured
  hosts.print_note(f"testing the stage {stage.name}")
  for model in stage.models:
    key = model.seed, model.checksum
    if key not in measured:
      specs = eval_specs(config, model, longest)
      measured[key] = [
        x for spec in specs for x in measure(config, model, spec)
      ]
      measured[key] += frontiers(config, model, measured[key], longest)
    base = row_conditions(stage, model)
    rows += [base | row for row in measured[key]]
  merged = records.merge(path, rows, keep_larger=not config.eval.replace)
  kept = sum(row is not new for row, new in zip(merged, rows, strict=True))
  if kept:
    hosts.print_note(
      f"{path}: earlier rows of more samples are kept ({kept});"
      " --config.eval.replace=True replaces them"
    )
  return merged


def measure(config: ConfigDict, model: Model, spec: EvalSpec) -> list[dict]:
  """Returns the rows of a test without the fields of `row_conditions`, and
  prints its exact match."""
  task = model.experiment.task
  rows = measures.test_rows(model, spec, config.eval.free_running)
  exact_match_row = rows[0]
  hosts.print_note(
    f"seed {model.seed}, {spec.name}, {spec.length} {task.unit}: EM"
    f" {100 * exact_match_row['value']:.1f} % of {exact_match_row['n']}"
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
  right, for each test set that is sampled at every length, if eval.frontier is
  set; `rows` are those of `measure`, whose lengths are not measured again."""
  section, task = config.eval, model.experiment.task
  bound, frontier_rows = int(min(section.frontier, longest)), []
  for name in section.test_sets if bound else ():
    is_plain = (name, ()) in task.variants(name, section, bound)
    if not is_plain or task.num_test_samples(name, bound, 2) < 2:
      continue
    samples, seed = section.frontier_samples, section.seed
    spec = EvalSpec(name, name, (), bound, samples, seed, section.memory_mb)
    row = measures.frontier(model, spec, rows)
    frontier_rows.append({"test_set": name, "length": None, "bits": None} | row)
    hosts.print_note(
      f"seed {model.seed}, {name}: exact match of at least"
      f" {100 * measures.COMPLETE_EM:.0f} % up to {row['value']:.0f}"
      f" {task.unit} (tried up to {bound})"
    )
  return frontier_rows


def eval_specs(
  config: ConfigDict, model: Model, longest: float = math.inf
) -> list[EvalSpec]:
  """Returns the tests that config.eval names, at lengths up to `longest`; of
  the model, only its experiment counts."""
  section, task, specs = config.eval, model.experiment.task, []
  samples_by_length = dict(
    zip(section.lengths, itertools.cycle(section.samples), strict=False)
  )
  for test_set, length in itertools.product(
    task.tested_sets(section), [x for x in samples_by_length if x <= longest]
  ):
    samples = samples_by_length[length]
    if test_set not in section.test_sets:
      samples = min(samples, section.stress_samples)
    count = task.num_test_samples(test_set, length, samples)
    conditions = length, samples, section.seed, section.memory_mb, count
    specs += [
      EvalSpec(name, test_set, arguments, *conditions)
      for name, arguments in task.variants(test_set, section, length)
    ]
  return specs


def certified_row(
  stage: workdir.Stage, model: Model, certificate: dict
) -> dict:
  """Returns the row of a model's certificate."""
  return (
    row_conditions(stage, model)
    | dict.fromkeys(("test_set", "length", "bits", "lower_bound"))
    | {"metric": "certified", "value": certificate["outcome"]}
    | {"n": certificate["contexts"], "reason": certificate["verdict"]}
    | {name: certificate[name] for name in ("margin", "rounding")}
  )


def row_conditions(stage: workdir.Stage, model: Model) -> dict:
  """Returns the fields that all result rows of a model share: its task, how it
  was trained, and how it is tested."""
  config, experiment = stage.config, model.experiment
  task = experiment.task
  is_natural = config.data.width == "natural"
  has_slack = is_natural and task.axes == 1 and not task.ragged
  data_kind = "endless" if task.ragged else config.data.numbers
  return {
    "task": config.task,
    "method": " ".join([config.method, *config.overrides]),
    "stage": stage.name,
    "family": experiment.kind,
    "width": config.data.width,
    "slack": task.slack if has_slack else None,
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
  }
