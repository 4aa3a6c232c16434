"""Results of many workdirs as one table and figures."""

import json
import pathlib

from lengthgen_jax import records, tables
from lengthgen_jax.errors import check
from lengthgen_jax.interpret import plots

# Sections whose fields say how a run was made; the others how it was tested.
MADE_BY = (
  "data",
  "sequences",
  "model",
  "positions",
  "temperature",
  "bias",
  "train",
  "calibration",
)


def run(root: pathlib.Path) -> str:
  """Writes `root`/report.md and figures from all results.jsonl below it.

  Figures are EM and (where it was measured) edit distance by length and by
  repetition, and EM by every number in the configs that was varied.

  Returns:
    The table, in Markdown.

  Raises:
    UsageError: there are no results.
  """
  files = sorted(root.rglob("results.jsonl"))
  rows = [
    _with_seed(row) | {"run": str(file.parent.relative_to(root))}
    for file in files
    for row in records.read(file)
  ]
  exact = [row for row in rows if row["metric"] == "em"]
  check(exact, f"--workdir={root}: no results.jsonl with rows below it")
  text = tables.of_runs(exact)
  records.write_text(root / "report.md", text + "\n")
  for task in sorted({row["task"] for row in rows}):
    for width in sorted({row["width"] for row in rows}):
      mine = [r for r in rows if (r["task"], r["width"]) == (task, width)]
      if mine:
        _figures(root, mine, f"{task}, width={width}", f"{task}_{width}")
  return text


def _with_seed(row: dict) -> dict:
  """A row whose test set names the seed of its samples, if it is not 0."""
  seed = row.get("eval_seed", 0)
  name = f"{row['test_set']} (eval.seed={seed})" if seed else row["test_set"]
  return row | {"test_set": name}


def _figures(root: pathlib.Path, rows: list[dict], title: str, name: str):
  """The figures of one task and width."""
  path = lambda what="": root / "figures" / f"{name}{what}.png"
  repeats = [row for row in rows if row["test_set"].startswith("repeats_")]
  if repeats:
    apart = _told_apart(repeats)
    plots.by_repetition(apart, path("_repetition"), title)
    if any(row["metric"] == "edit" for row in repeats):
      plots.by_repetition(apart, path("_repetition_edit"), title, "edit")
  rows = [row for row in rows if row not in repeats]
  if not rows:
    return
  plots.by_length(_told_apart(rows), path(), title)
  if any(row["metric"] == "edit" for row in rows):
    plots.by_length(_told_apart(rows), path("_edit"), title, "edit")
  numbers = varied(root, rows)
  for field in numbers:
    there = _alone(rows, numbers, field)
    for test_set in sorted({row["test_set"] for row in there}):
      mine = [row for row in there if row["test_set"] == test_set]
      what = f"_{test_set}_by_{field.rpartition('.')[2]}"
      heading = f"{title}, test set: {test_set}"
      plots.by_field(mine, path(what), heading, field)


def _alone(rows: list[dict], numbers: dict, field: str) -> list[dict]:
  """Rows that hold `field`, and name the other varied numbers beside their
  method; where nothing but `field` differs."""
  found = {}
  for row in rows:
    run = row["run"]
    others = [
      f"{name.rpartition('.')[2]}={value[run]}"
      for name, value in numbers.items()
      if name != field
    ]
    method = ", ".join([row["method"], *others])
    row = row | {field: numbers[field][run], "method": method}
    found.setdefault(method, []).append(row)
  return [
    row
    for group in found.values()
    if len({row[field] for row in group}) > 1
    for row in group
  ]


def varied(root: pathlib.Path, rows: list[dict]) -> dict:
  """{field: {run: value}} of numbers that differ between runs of a method."""
  methods = {row["run"]: row["method"] for row in rows}
  numbers = {run: _numbers(root / run / "config.json") for run in methods}
  found = {}
  for field in sorted(set.intersection(*map(set, numbers.values()))):
    value = {run: fields[field] for run, fields in numbers.items()}
    pairs = {(methods[run], number) for run, number in value.items()}
    if len(pairs) > len(set(methods.values())):
      found[field] = value
  return found


def _numbers(file: pathlib.Path) -> dict:
  """{section.field: number} of a saved config; nothing if there is none."""
  config = json.loads(file.read_text()) if file.exists() else {}
  return {
    f"{section}.{field}": value
    for section in MADE_BY
    for field, value in config.get(section, {}).items()
    if isinstance(value, int | float) and not isinstance(value, bool)
  }


def _told_apart(rows: list[dict]) -> list[dict]:
  """Rows whose method names the run too, where several runs share a method."""
  runs = {}
  for row in rows:
    runs.setdefault(row["method"], set()).add(row["run"])
  return [
    row | {"method": _full_name(row)} if len(runs[row["method"]]) > 1 else row
    for row in rows
  ]


def _full_name(row: dict) -> str:
  """Method and run, or the run alone if it is called by the method."""
  method, run = row["method"], row["run"]
  called_by_it = run.startswith(method.replace("+", "-"))
  return run if called_by_it else f"{method}: {run}"
