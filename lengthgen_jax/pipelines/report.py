"""This is --mode=report: it writes tables, figures and a page of results.

It reads every results.jsonl below a folder. report.md, report.tex and
report.csv hold the tables; report.html is a self-contained page. Figures show
exact match and (where it was measured) edit distance by length, by repetition
and by multiplicity, and exact match by every number in the configs that was
varied.
"""

import json
import pathlib
from typing import Any

from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict

from lengthgen_jax.config.files import CHANGEABLE
from lengthgen_jax.errors import UsageError, check, file_errors
from lengthgen_jax.pretrained import files as pretrained
from lengthgen_jax.results import figures, html_report, records, tables
from lengthgen_jax.results.records import of_metric

# Sections and fields of a config that say how a run was saved, called or
# tested, or where it ran, and its task and seeds, which each row names; the
# others say how it was trained.
NOT_TRAINED = (
  *("checkpoint", "task", "method", "overrides", "seeds"),
  *CHANGEABLE,
)


def run(config: ConfigDict | None, workdir: pathlib.Path) -> int:
  """Writes the report of all results below a folder, and prints its tables.

  Args:
    config: not used, since every run has its own; None if there is none.
    workdir: the folder, of one run or of many.

  Returns:
    The exit code.

  Raises:
    UsageError: as in `write_report`.
  """
  del config
  print(write_report(workdir))
  print(f"page: {workdir / 'report.html'}")
  return 0


def write_report(root: pathlib.Path) -> str:
  """Writes the report of all results below a folder.

  Returns:
    What report.md has: the tables, and what is missing.

  Raises:
    UsageError: there are no rows of exact match, a file cannot be read or is
      of another version, results.jsonl has no config.json beside it, or the
      folder cannot be written.
  """
  rows, configs = read_runs(root)
  unproved = [name for name in configs if is_of_other_model(configs[name])]
  rows = [
    row
    for row in rows
    if row["metric"] != "certified" or row["run"] not in unproved
  ]
  exact_rows, edit_rows = of_metric(rows, "em"), of_metric(rows, "edit")
  check(
    exact_rows, f"--workdir={root}: no results.jsonl with exact match below it"
  )
  missing = missing_results(exact_rows, configs)
  verdict = pretrained.OTHER_MODEL["verdict"]
  missing += [f"{name}: {verdict}" for name in unproved]
  run_tables = [tables.runs_grid(rows)]
  paragraphs = [tables.to_markdown(run_tables[0])]
  if edit_rows:
    run_tables.append(tables.runs_grid(rows, "edit"))
    paragraphs.append("Edit distance, % of the output:")
    paragraphs.append(tables.to_markdown(run_tables[1]))
  paragraphs += [f"Missing: {message}." for message in missing]
  text = "\n\n".join(paragraphs)
  latex = "\n\n".join(map(tables.to_latex, run_tables))
  with file_errors(f"--workdir={root}: cannot write there"):
    records.write_text(root / "report.md", text + "\n")
  records.write_text(root / "report.tex", latex + "\n")
  records.write_text(root / "report.csv", tables.to_csv(rows))
  paths = figures.draw(rows, root / "figures")
  paths += draw_by_field(exact_rows, configs, root / "figures")
  title = f"Results below {root.resolve().name}"
  html = html_report.page(title, rows, missing, paths)
  records.write_text(root / "report.html", html)
  return text


def read_runs(root: pathlib.Path) -> tuple[list[dict], dict[str, dict]]:
  """Reads the results and the configs of all runs below a folder.

  Returns:
    The rows, with the path of their run below `root` as the field "run" ("."
    for `root` itself); and {run: config}, which has the runs without results
    too.

  Raises:
    UsageError: a file cannot be read or is of another version, or a
      results.jsonl has no config.json beside it.
  """
  rows, configs = [], {}
  for file in sorted(root.rglob("results.jsonl")):
    name = str(file.parent.relative_to(root))
    rows += [row | {"run": name} for row in records.read_results(file)]
    check(
      file.with_name("config.json").exists(),
      f"{file}: no config.json beside it says how it was made",
    )
  for file in sorted(root.rglob("config.json")):
    with file_errors(f"{file}: cannot be read"):
      config = json.loads(file.read_text(encoding="utf-8"))
    try:
      seeds_and_lengths(config)  # fails if the file is no config
    except (AttributeError, TypeError) as error:
      raise UsageError(f"{file}: cannot be read (it is no config)") from error
    configs[str(file.parent.relative_to(root))] = config
  return rows, configs


def is_of_other_model(config: dict) -> bool:
  """Returns whether a run is that of a pretrained model, with a card whose
  certificate is of another one."""
  try:
    model = config.get("pretrained")
    card = pretrained.read(model)[0] if model else {}
  except UsageError:  # it was moved, or replaced by what is no model
    return False
  return card.get("certificate") == pretrained.OTHER_MODEL


def seeds_and_lengths(config: dict) -> tuple[set[int], set[int]]:
  """Returns the seeds and the test lengths of a saved config."""
  lengths = config.get("eval", {}).get("lengths", ())
  return set(config.get("seeds", ())), set(lengths)


def missing_results(rows: list[dict], configs: dict[str, dict]) -> list[str]:
  """Returns messages that name the seeds and lengths without results.

  Args:
    rows: rows of exact match of all runs.
    configs: {run: config}, which say which seeds and lengths a run has.
  """
  messages = []
  for name, config in configs.items():
    run_rows = [row for row in rows if row["run"] == name]
    if not run_rows:
      messages.append(f"{name} has no results yet")
      continue
    seeds, lengths = seeds_and_lengths(config)
    for stage in sorted({row["stage"] for row in run_rows}):
      stage_seeds = {row["seed"] for row in run_rows if row["stage"] == stage}
      if seeds - stage_seeds:
        text = ", ".join(map(str, sorted(seeds - stage_seeds)))
        messages.append(f"{name} ({stage}) lacks seeds {text}")
    missing_lengths = lengths - {row["length"] for row in run_rows}
    if missing_lengths:
      text = ", ".join(map(str, sorted(missing_lengths)))
      messages.append(f"{name} lacks lengths {text}")
  return messages


def training_fields(config: dict) -> dict[str, Any]:
  """Returns {section.field: value} of the fields that a run was trained with;
  lists are text."""
  sections = {
    name: section for name, section in config.items() if name not in NOT_TRAINED
  }
  return {
    field: str(value) if isinstance(value, list) else value
    for field, value in flatten_dict(sections, sep=".").items()
  }


def varied_fields(
  fields_by_run: dict[str, dict], rows: list[dict]
) -> dict[str, dict[str, Any]]:
  """Returns {field: {run: value}} of the fields that vary within a method.

  Fields that some of the runs do not have are left out.

  Args:
    fields_by_run: what `training_fields` returns, by run.
    rows: rows that name their run and method. A run may have several methods,
      one for each stage; runs without rows do not count.
  """
  methods = {(row["run"], row["method"]) for row in rows}
  run_names = sorted({run_name for run_name, _ in methods})
  fields = set.intersection(*(set(fields_by_run[name]) for name in run_names))
  varied = {}
  for field in sorted(fields):
    values = {name: fields_by_run[name][field] for name in run_names}
    method_values = {(method, values[name]) for name, method in methods}
    if len(method_values) > len({method for _, method in methods}):
      varied[field] = values
  return varied


def without_overrides(row: dict, config: dict) -> dict:
  """Returns a row whose method does not name the fields that the command line
  set: "vanilla data.size=9" is "vanilla".

  Args:
    row: a row of results.
    config: the config of its run.
  """
  overrides = " ".join(["", *config.get("overrides", ())])
  return row | {"method": row["method"].removesuffix(overrides)}


def draw_by_field(
  rows: list[dict], configs: dict[str, dict], folder: pathlib.Path
) -> list[pathlib.Path]:
  """Draws exact match against every number that varies within a method.

  A curve joins the runs that differ in that number alone.

  Args:
    rows: rows of exact match of all runs.
    configs: {run: config}.
    folder: where the figures are written.

  Returns:
    The paths of the figures.
  """
  fields_by_run = {
    name: training_fields(config) for name, config in configs.items()
  }
  rows = [
    without_overrides(row, configs[row["run"]])
    for row in rows
    if figures.varied_by(row) == "length"
  ]
  paths = []
  for (task, width), group in figures.by_task_and_width(rows).items():
    fields = varied_fields(fields_by_run, group)
    for field, values in fields.items():
      if not {type(value) for value in values.values()} <= {int, float}:
        continue
      rows_by_curve = {}
      for row in group:
        other_fields = [
          f"{name.rpartition('.')[2]}={by_run[row['run']]}"
          for name, by_run in fields.items()
          if name != field
        ]
        method = ", ".join([row["method"], *other_fields])
        row = row | {field: values[row["run"]], "method": method}
        rows_by_curve.setdefault((row["test_set"], method), []).append(row)
      rows_by_test_set = {}
      for (test_set, _), curve_rows in sorted(rows_by_curve.items()):
        if len({row[field] for row in curve_rows}) > 1:
          rows_by_test_set.setdefault(test_set, []).extend(curve_rows)
      for test_set, set_rows in rows_by_test_set.items():
        path = folder / f"{task}_{width}_{test_set}_by_{field}.png"
        title = f"{task}, width={width}, test set: {test_set}"
        paths.append(figures.by_field(set_rows, path, title, field))
  return paths
