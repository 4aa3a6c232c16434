"""What each --mode does with a config and a workdir."""

import pathlib
import sys

from lengthgen_jax import checkpoint, evaluate, predict, records, restore, train
from lengthgen_jax import experiment as experiments
from lengthgen_jax import report as reports
from lengthgen_jax.errors import UsageError, check

CONFIG_FILE = "config.json"


def run(mode: str, config, workdir: pathlib.Path, source) -> int:
  """Runs one mode and returns the exit code.

  Raises:
    UsageError: one line for the user.
  """
  if mode == "report":
    print(reports.run(workdir))
    return 0
  experiment, lines = train.prepare(config)
  if mode == "train":
    open_workdir(config, workdir)
    try:
      train.run(config, experiment, lines, workdir, report)
    except train.Interrupted as stop:
      report(str(stop))
      return 143
    return evaluate_workdir(config, experiment, lines, workdir)
  check_trained(config, workdir)
  if mode == "evaluate":
    return evaluate_workdir(config, experiment, lines, workdir)
  state = restore.load_state(config, experiment, lines, workdir, report)
  seed_states = restore.seed_states(config, state)
  if source is None:
    return predict.run(experiment, lines, seed_states, sys.stdin)
  try:
    with open(source) as file:
      return predict.run(experiment, lines, seed_states, file)
  except OSError as error:
    raise UsageError(f"--input={source}: {error.strerror}") from error


def report(line: str) -> None:
  print(line, file=sys.stderr)


def open_workdir(config, workdir: pathlib.Path) -> None:
  """Creates the workdir, or checks that it is this config's.

  Raises:
    UsageError: it cannot be written, or belongs to another config.
  """
  saved = checkpoint.saved_config(workdir)
  if saved is not None:
    sections = [s for s in config if s not in experiments.READING_FIELDS]
    refuse_other(config, saved, sections, workdir)
  try:
    text = config.to_json_best_effort(indent=2)
    records.write_text(workdir / CONFIG_FILE, text + "\n")
  except OSError as error:
    raise UsageError(
      f"--workdir={workdir}: cannot write there ({error.strerror})"
    ) from error


def check_trained(config, workdir: pathlib.Path) -> None:
  """UsageError unless the workdir was trained with this model and task."""
  saved = checkpoint.saved_config(workdir)
  check(
    saved is not None,
    f"--workdir={workdir}: nothing was trained there; run --mode=train first",
  )
  sections = [s for s in config if s not in experiments.READING_FIELDS]
  refuse_other(config, saved, sections, workdir)


def refuse_other(config, saved: dict, sections, workdir) -> None:
  found = experiments.differences(config, saved, sections)
  check(
    not found,
    f"--workdir={workdir} belongs to another config: {'; '.join(found)}."
    " Choose another workdir, or the config it was made with",
  )


def evaluate_workdir(config, experiment, lines, workdir) -> int:
  """Evaluates, prints the table, draws the figure."""
  from lengthgen_jax.interpret import plots

  state = restore.load_state(config, experiment, lines, workdir, report)
  seed_states = restore.seed_states(config, state)
  rows = evaluate.run(config, experiment, lines, seed_states, workdir, "train")
  print(evaluate.table(rows))
  figure = plots.accuracy_by_length(
    rows,
    workdir / "figures" / "accuracy_by_length.png",
    f"{config.task}, width={config.data.width}",
  )
  print(f"rows: {workdir / 'results.jsonl'}   figure: {figure}")
  return 0
