"""Results of many workdirs as one table and figures."""

import json
import pathlib

from lengthgen_jax.errors import check
from lengthgen_jax.results import figures as plots
from lengthgen_jax.results import records, schema, tables

# Parts of a config that say how a run was tested, saved or called; the others
# say how it was made.
NOT_MADE_BY = ("eval", "certify", "probe", "checkpoint")
NOT_MADE_BY += ("task", "method", "overrides", "seeds")


def run(root: pathlib.Path) -> str:
  """Writes `root`/report.md and figures from all results.jsonl below it.

  Figures are EM and (where it was measured) edit distance by length and by
  repetition, and EM by every number in the configs that was varied.

  Returns:
    The table, in Markdown.

  Raises:
    UsageError: there are no results, or a file is of another version.
  """
  rows = [
    row | {"run": str(file.parent.relative_to(root))}
    for file in sorted(root.rglob("results.jsonl"))
    for row in records.read_results(file)
  ]
  exact = schema.of_metric(rows, "em")
  check(exact, f"--workdir={root}: no results.jsonl with exact match below it")
  text = tables.of_runs(exact)
  records.write_text(root / "report.md", text + "\n")
  drawn = exact + schema.of_metric(rows, "edit")
  figures = {}
  for row in drawn:
    figures.setdefault((row["task"], row["width"]), []).append(row)
  for (task, width), mine in sorted(figures.items()):
    _figures(root, mine, f"{task}, width={width}", f"{task}_{width}")
  return text


def _figures(root: pathlib.Path, rows: list[dict], title: str, name: str):
  """The figures of one task and width."""
  path = lambda what="": root / "figures" / f"{name}{what}.png"
  repeats, others = [], []
  for row in rows:
    repeated = row["test_set"].startswith("repeats_")
    (repeats if repeated else others).append(row)
  for mine, draw, what in (
    (repeats, plots.by_repetition, "_repetition"),
    (others, plots.by_length, ""),
  ):
    for metric, end in (("em", ""), ("edit", "_edit")):
      if schema.of_metric(mine, metric):
        draw(mine, path(what + end), title, metric)
  exact = schema.of_metric(others, "em")
  fields = varied(root, exact)
  for field in filter(lambda f: _is_numbers(fields[f].values()), fields):
    there = _alone(exact, fields, field)
    for test_set in sorted({row["test_set"] for row in there}):
      mine = [row for row in there if row["test_set"] == test_set]
      heading = f"{title}, test set: {test_set}"
      plots.by_field(mine, path(f"_{test_set}_by_{field}"), heading, field)


def _alone(rows: list[dict], fields: dict, field: str) -> list[dict]:
  """Rows that hold `field`, and name the other varied fields beside their
  method; where nothing but `field` differs."""
  found = {}
  for row in rows:
    run = row["run"]
    others = [
      f"{name.rpartition('.')[2]}={value[run]}"
      for name, value in fields.items()
      if name != field
    ]
    method = ", ".join([row["method"], *others])
    row = row | {field: fields[field][run], "method": method}
    found.setdefault(method, []).append(row)
  return [
    row
    for group in found.values()
    if len({row[field] for row in group}) > 1
    for row in group
  ]


def varied(root: pathlib.Path, rows: list[dict]) -> dict:
  """{field: {run: value}} of what differs between runs of a method."""
  methods = {row["run"]: row["method"] for row in rows}
  configs = {run: _made_by(root / run / "config.json") for run in methods}
  if not configs:
    return {}
  found = {}
  for field in sorted(set.intersection(*map(set, configs.values()))):
    value = {run: fields[field] for run, fields in configs.items()}
    pairs = {(methods[run], there) for run, there in value.items()}
    if len(pairs) > len(set(methods.values())):
      found[field] = value
  return found


def _made_by(file: pathlib.Path) -> dict:
  """{section.field: value} of a saved config; nothing if there is none."""
  config = json.loads(file.read_text()) if file.exists() else {}
  return dict(
    leaf
    for name, value in config.items()
    if name not in NOT_MADE_BY
    for leaf in _leaves(name, value)
  )


def _leaves(name: str, value):
  """(dotted name, value) of every field; lists as text."""
  if isinstance(value, dict):
    for inner, there in value.items():
      yield from _leaves(f"{name}.{inner}", there)
  else:
    yield name, str(value) if isinstance(value, list) else value


def _is_numbers(values) -> bool:
  return all(
    isinstance(value, int | float) and not isinstance(value, bool)
    for value in values
  )
