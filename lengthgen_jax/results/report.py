"""The report of all results below a folder: tables, figures and a page.

It reads every results.jsonl below a folder. report.md, report.tex and
report.csv hold the tables, one for each task; report.html is a self-contained
page. Fields of the config that were set to different values, as by a sweep, are
columns, and all points have their value in their labels, also those that have
the default.
"""

import itertools
import json
import pathlib

import pandas as pd
from flax.traverse_util import flatten_dict

from lengthgen_jax.errors import check, file_errors
from lengthgen_jax.results import figures, html_report, records, tables
from lengthgen_jax.results.records import of_metric


def write_report(root: pathlib.Path) -> str:
  """Writes the report of all results below a folder; returns what report.md
  has: the tables, and what is missing.

  Raises:
    UsageError: there is nothing to report, a file cannot be read or is of
      another version, or the folder cannot be written.
  """
  rows, configs = read_runs(root)
  check(
    of_metric(rows, "em"),
    f"--workdir={root}: no results.jsonl with exact match below it",
  )
  missing = missing_results(of_metric(rows, "em"), configs)
  rows, varied = with_varied_fields(rows, configs)
  paragraphs, latex = [tables.LEGEND], []
  for task, name in itertools.product(varied, figures.AXES):
    cells = tables.cells_of_task(rows, task, name, varied[task])
    if len(cells):
      table = tables.named(cells, varied[task])
      title = f"{task}: {figures.AXES[name]}"
      paragraphs += [f"## {title}", tables.to_markdown(table)]
      latex.append(f"% {title}\n{tables.to_latex(table)}")
  paragraphs += [f"Missing: {message}." for message in missing]
  text = "\n\n".join(paragraphs)
  with file_errors(f"--workdir={root}: cannot write there"):
    records.write_text(root / "report.md", text + "\n")
  records.write_text(root / "report.tex", "\n".join(latex))
  records.write_text(root / "report.csv", tables.to_csv(rows))
  points = [row | {"method": row["point"]} for row in rows]
  paths = figures.draw(points, root / "figures")
  paths += draw_by_field(points, varied, root / "figures")
  title = f"Results below {root.resolve().name}"
  html = html_report.page(title, rows, missing, paths, varied)
  records.write_text(root / "report.html", html)
  return text


def read_runs(root: pathlib.Path) -> tuple[list[dict], dict[str, dict]]:
  """Returns the rows of all runs below a folder, with the path of their run as
  the field "run" ("." for the folder itself); and {run: config}, which has the
  runs without results too.

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
    is_config = isinstance(config, dict) and (
      isinstance(config.get("seeds", []), list)
      and isinstance(config.get("eval", {}), dict)
    )
    check(is_config, f"{file}: cannot be read (it is no config)")
    configs[str(file.parent.relative_to(root))] = config
  return rows, configs


def missing_results(rows: list[dict], configs: dict[str, dict]) -> list[str]:
  """Returns messages that name the seeds and lengths without results, given the
  rows of exact match of all runs, and {run: config}."""
  messages, table = [], pd.DataFrame(rows)
  for name, config in configs.items():
    measured = table[table.run == name]
    if measured.empty:
      messages.append(f"{name} has no results yet")
      continue
    gaps = {
      f"{name} ({stage}) lacks seeds": {*config["seeds"]} - {*part.seed}
      for stage, part in measured.groupby("stage")
    }
    lengths = {*config["eval"]["lengths"]} - {*measured.length}
    messages += [
      f"{text} {', '.join(map(str, sorted(gap)))}"
      for text, gap in (gaps | {f"{name} lacks lengths": lengths}).items()
      if gap
    ]
  return messages


def with_varied_fields(
  rows: list[dict], configs: dict[str, dict]
) -> tuple[list[dict], dict[str, list[str]]]:
  """Returns rows that have the values of the config fields that were varied
  between the runs of their task; and {task: [field]}, by the names of tasks.

  A field was varied if one of the runs overrides it and its value differs. It
  is a field of the rows, and not in their methods. The field "point" is the
  method with the values of these fields, also where they are the default.
  """
  overrides = {
    run: config.get("overrides", ()) for run, config in configs.items()
  }
  flat = {run: flatten_dict(x, sep=".") for run, x in configs.items()}
  varied, labeled = {}, []
  for task in sorted({row["task"] for row in rows}):
    runs = {row["run"] for row in rows if row["task"] == task}
    names = {text.partition("=")[0] for run in runs for text in overrides[run]}
    values = lambda name, runs=runs: {str(flat[run].get(name)) for run in runs}
    varied[task] = sorted(name for name in names if len(values(name)) > 1)
  for row in rows:
    fields, method = {}, row["method"]
    for name in varied[row["task"]]:
      value = flat[row["run"]].get(name)
      # Numbers are axes of figures; all other values are text.
      fields[name] = value if type(value) in (int, float) else str(value)
    for text in overrides[row["run"]]:
      if text.partition("=")[0] in fields:
        method = method.replace(f" {text}", "")
    point = " ".join([method, *(f"{name}={x}" for name, x in fields.items())])
    labeled.append(row | {"method": method, "point": point} | fields)
  return labeled, varied


def draw_by_field(
  rows: list[dict], varied: dict[str, list[str]], folder: pathlib.Path
) -> list[pathlib.Path]:
  """Draws exact match against every number that was varied, and returns the
  paths of the figures.

  A curve joins the runs that differ in that number alone.
  """
  groups = {}
  for row in of_metric(rows, "em"):
    if figures.varied_by(row) == "length":
      for field in varied[row["task"]]:
        method = row["method"].replace(f" {field}={row[field]}", "")
        place = row["task"], row["test_set"], field
        groups.setdefault(place, []).append(row | {"method": method})
  paths = []
  for (task, test_set, field), group in groups.items():
    if not any(isinstance(row[field], str) for row in group):
      path = folder / f"{task}_{test_set}_by_{field}.png"
      title = f"{task}, test set: {test_set}"
      paths.append(figures.curves(group, path, title, field, field))
  return paths
