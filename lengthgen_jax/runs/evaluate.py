"""--mode=evaluate: accuracy by test length: rows, a table and a figure."""

import pathlib
import sys
import time

from ml_collections import ConfigDict

import lengthgen_jax
from lengthgen_jax.config.saved import config_hash
from lengthgen_jax.config.stages import reading
from lengthgen_jax.results import figures, records, tables
from lengthgen_jax.results.measures import MEASURES
from lengthgen_jax.runs import workdir as workdirs
from lengthgen_jax.trained import Model, Test


def run(config: ConfigDict, workdir: pathlib.Path) -> int:
  """Evaluates, prints the table, draws the figures."""
  workdirs.check_trained(config, workdir)
  if workdirs.is_pipeline(workdir):
    from lengthgen_jax.runs import abc

    return abc.evaluate(config, workdir)
  made = workdirs.prepare(config, workdir)
  models = workdirs.load(made, config.eval.checkpoint)
  rows = evaluate(config, models, workdir, "train", len(config.seeds))
  print(tables.of_run(rows))
  tell(workdir, figures.of_run(rows, workdir / "figures", title(config)))
  return 0


def tell(workdir: pathlib.Path, made: list) -> None:
  """Says where rows and figures are."""
  print(f"rows: {workdir / 'results.jsonl'}")
  print(f"figures: {', '.join(str(path) for path in made)}")


def title(config: ConfigDict) -> str:
  return f"{config.task}, width={config.data.width}"


def evaluate(
  config: ConfigDict, models: list[Model], folder, stage: str, asked: int
) -> list[dict]:
  """Evaluates every seed, merges the rows into `folder`/results.jsonl.

  Args:
    config: the whole config; its `eval` section says what to test.
    models: one of each seed.
    folder: where results.jsonl is.
    stage: "train", or the stage of a pipeline that trained the parameters.
    asked: how many seeds the run was asked for.

  Returns:
    The rows of this evaluation.
  """
  records.read_results(folder / "results.jsonl")  # refused now, not later
  rows = []
  for model in models:
    base = row_base(config, model, stage, asked)
    for test in tests(config, model):
      clock = time.perf_counter()
      names = ["accuracy"]
      names += ["free_running"] if config.eval.free_running else []
      found = [row for name in names for row in MEASURES[name](model, test)]
      rows += [base | row for row in found]
      exact = next(row for row in found if row["metric"] == "em")
      speed = exact["n"] / (time.perf_counter() - clock)
      print(
        f"seed {model.seed}, {test.name}, {test.length} {base['unit']}: EM"
        f" {100 * exact['value']:.1f} % of {exact['n']} ({speed:.0f} samples/s"
        " with compilation)",
        file=sys.stderr,
      )
  records.merge(folder / "results.jsonl", rows)
  return rows


def tests(config: ConfigDict, model: Model):
  """Every Test that `eval` asks for."""
  section, task = config.eval, model.experiment.task
  samples = tuple(section.samples)
  if len(samples) == 1:
    samples *= len(section.lengths)
  for test_set in section.test_sets:
    for length, count in zip(section.lengths, samples, strict=True):
      for name, how in task.variants(test_set, section, length):
        yield Test(
          name, test_set, how, length, count, section.seed, section.memory_mb
        )


def up_to(config: ConfigDict, longest: int) -> ConfigDict:
  """The config testing no length beyond `longest`."""
  lengths, samples = tuple(config.eval.lengths), tuple(config.eval.samples)
  kept = [i for i, length in enumerate(lengths) if length <= longest]
  if len(samples) > 1:
    samples = tuple(samples[i] for i in kept)
  return reading(
    config, lengths=tuple(lengths[i] for i in kept), samples=samples
  )


def row_base(config: ConfigDict, model: Model, stage: str, asked: int) -> dict:
  """The conditions of a row: everything but what was measured."""
  task = model.experiment.task
  padded = not task.ragged and config.data.width == "natural"
  size = config.data.size
  endless = "endless" if task.ragged else config.data.numbers
  return {
    "task": config.task,
    "method": " ".join([config.method, *config.overrides]),
    "stage": stage,
    "family": model.experiment.kind,
    "width": config.data.width,
    "slack": task.slack if padded else None,
    "train_length": config.data.train_length,
    "train_data": str(size) if size else endless,
    "seed": model.seed,
    "seeds_asked": asked,
    "eval_seed": config.eval.seed,
    "unit": task.unit,
    "step": model.step,
    "checkpoint": str(config.eval.checkpoint),
    "stopped_at": model.stopped_at,
    "leak": config.bias.allow_leak,
    "config_hash": config_hash(config),
    "version": lengthgen_jax.__version__,
    "position": None,
  }
