"""What each --mode does with a config and a workdir."""

import pathlib
import sys

from tqdm import tqdm

from lengthgen_jax import (
  abc,
  calibrate,
  checkpoint,
  evaluate,
  predict,
  records,
  restore,
  tables,
  train,
)
from lengthgen_jax import report as reports
from lengthgen_jax import saved as saved_configs
from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.interpret import plots
from lengthgen_jax.tasks import ARITHMETIC

CONFIG_FILE = "config.json"
INTERRUPTED = 143  # exit code after SIGTERM


def run(mode: str, config, workdir: pathlib.Path, source) -> int:
  """Runs one mode and returns the exit code.

  Raises:
    UsageError: one line for the user.
  """
  if mode == "report":
    print(reports.run(workdir))
    return 0
  check(
    mode not in ("abc", "calibrate") or config.task in ARITHMETIC,
    f"--mode={mode} reads cross-attention, {config.task!r} has none: choose"
    f" one of {', '.join(ARITHMETIC)}",
  )
  if mode in ("train", "abc"):
    return _train(mode, config, workdir)
  check_trained(config, workdir)
  if mode == "evaluate":
    return evaluate_workdir(config, workdir)
  if mode == "calibrate":
    return calibrate_workdir(config, workdir)
  config, experiment, lines, folder = trained_parts(config, workdir)
  state = restore.load_state(config, experiment, lines, folder, report)
  seed_states = restore.seed_states(config, state)
  if source is None:
    sys.stdin.reconfigure(errors="replace")
    return predict.run(experiment, lines, seed_states, sys.stdin)
  try:
    with open(source, errors="replace") as file:
      return predict.run(experiment, lines, seed_states, file)
  except OSError as error:
    raise UsageError(f"--input={source}: {error.strerror}") from error


def report(line: str) -> None:
  """A line on standard error, above a progress bar if there is one."""
  tqdm.write(line, file=sys.stderr)


def _train(mode: str, config, workdir: pathlib.Path) -> int:
  experiment, lines = train.prepare(config, report)
  if mode == "abc":
    abc.check_config(config)
  else:
    evaluate.check_widths(config, experiment, lines)
  open_workdir(config, workdir)
  try:
    if mode == "abc":
      abc.run(config, workdir, report)
    else:
      train.run(config, experiment, lines, workdir, report)
  except train.Interrupted as stop:
    report(str(stop))
    return INTERRUPTED
  return evaluate_workdir(config, workdir)


def open_workdir(config, workdir: pathlib.Path) -> None:
  """Creates the workdir, or checks that it is this config's.

  Raises:
    UsageError: it cannot be written, or belongs to another config.
  """
  saved = checkpoint.saved_config(workdir)
  if saved is not None:
    refuse_other(config, saved, workdir)
  try:
    text = config.to_json_best_effort(indent=2)
    records.write_text(workdir / CONFIG_FILE, text + "\n")
  except OSError as error:
    raise UsageError(
      f"--workdir={workdir}: cannot write there ({error.strerror})"
    ) from error


def check_trained(config, workdir: pathlib.Path) -> None:
  """UsageError unless the workdir was trained with this config."""
  saved = checkpoint.saved_config(workdir)
  check(
    saved is not None,
    f"--workdir={workdir}: nothing was trained there; run --mode=train first",
  )
  refuse_other(config, saved, workdir)


def refuse_other(config, saved: dict, workdir) -> None:
  sections = [s for s in config if s not in saved_configs.READING_FIELDS]
  found = saved_configs.differences(config, saved, sections)
  check(
    not found,
    f"--workdir={workdir} belongs to another config: {'; '.join(found)}."
    " Choose another workdir, or the config it was made with",
  )


def is_pipeline(workdir: pathlib.Path) -> bool:
  """Whether the workdir is one of --mode=abc."""
  return (workdir / abc.STAGES[0]).is_dir()


def trained_parts(config, workdir: pathlib.Path):
  """(config, experiment, LineBias, folder) of the model that answers: the
  retrained one of a pipeline."""
  if is_pipeline(workdir):
    return *abc.retrain_parts(config, workdir), workdir / "retrain"
  return config, *train.prepare(config), workdir


def evaluate_workdir(config, workdir: pathlib.Path) -> int:
  """Evaluates, prints the table, draws the figures."""
  if is_pipeline(workdir):
    rows = abc.evaluate_all(config, workdir, report)
    made = abc.figures(config, rows, workdir)
  else:
    experiment, lines = train.prepare(config)
    state = restore.load_state(config, experiment, lines, workdir, report)
    seed_states = restore.seed_states(config, state)
    rows = evaluate.run(
      config, experiment, lines, seed_states, workdir, "train"
    )
    made = figures(config, rows, workdir / "figures")
  print(tables.of_run(rows))
  if is_pipeline(workdir):
    print(abc.training_times(workdir))
  print(f"rows: {workdir / 'results.jsonl'}")
  print(f"figures: {', '.join(str(path) for path in made)}")
  return 0


def figures(config, rows, folder: pathlib.Path) -> list[pathlib.Path]:
  """EM and edit distance, where measured, by length and by repetition."""
  repeats = [r for r in rows if r["test_set"].startswith("repeats_")]
  others = [r for r in rows if r not in repeats]
  title = f"{config.task}, width={config.data.width}"
  made = []
  for metric, name in (("em", "accuracy"), ("edit", "edit_distance")):
    for mine, what, draw in (
      (others, "length", plots.by_length),
      (repeats, "repetition", plots.by_repetition),
    ):
      if any(row["metric"] == metric for row in mine):
        path = folder / f"{name}_by_{what}.png"
        made.append(draw(mine, path, title, metric))
  return made


def calibrate_workdir(config, workdir: pathlib.Path) -> int:
  """Writes W/calibrate/bias.npz from a trained workdir's attention."""
  check(
    not is_pipeline(workdir),
    f"--workdir={workdir}: --mode=abc calibrates by itself; name a workdir of"
    " --mode=train",
  )
  experiment, lines = train.prepare(config)
  states = abc.interpolated(config, experiment, workdir, report)
  calibrate.run(
    config, experiment, lines, states, workdir / "calibrate", report
  )
  print(f"bias: {workdir / 'calibrate' / 'bias.npz'}")
  return 0
