"""Results of many workdirs as one table and figures."""

import json
import pathlib

from flax.traverse_util import flatten_dict

from lengthgen_jax.errors import check
from lengthgen_jax.results import figures, records, schema, tables

# Parts of a config that say how a run was tested, saved or called; the others
# say how it was made.
NOT_MADE_BY = {
  "eval",
  "certify",
  "probe",
  "checkpoint",
  "task",
  "method",
  "overrides",
  "seeds",
}


def run(root: pathlib.Path) -> str:
  """Writes `root`/report.md and figures from all results.jsonl below it.

  Figures are EM and (where it was measured) edit distance by length, by
  repetition and by multiplicity, and EM by every number in the configs that was
  varied.

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
  drawn = {}
  for row in exact + schema.of_metric(rows, "edit"):
    drawn.setdefault((row["task"], row["width"]), []).append(row)
  for (task, width), mine in sorted(drawn.items()):
    _figures(root, mine, f"{task}, width={width}", f"{task}_{width}")
  return text


def _figures(root: pathlib.Path, rows: list[dict], title: str, name: str):
  """The figures of one task and width."""
  names = {
    ("em", "length"): name,
    ("em", "repetition"): f"{name}_repetition",
    ("em", "multiplicity"): f"{name}_multiplicity",
    ("edit", "length"): f"{name}_edit",
    ("edit", "repetition"): f"{name}_repetition_edit",
    ("edit", "multiplicity"): f"{name}_multiplicity_edit",
  }
  figures.of_run(rows, root / "figures", title, names)
  exact = [
    row
    for row in schema.of_metric(rows, "em")
    if figures.along(row["test_set"]) == "length"
  ]
  fields = varied(root, exact)
  for field, values in fields.items():
    if not {type(value) for value in values.values()} <= {int, float}:
      continue
    there = _alone(exact, fields, field)
    for test_set in sorted({row["test_set"] for row in there}):
      mine = [row for row in there if row["test_set"] == test_set]
      path = root / "figures" / f"{name}_{test_set}_by_{field}.png"
      heading = f"{title}, test set: {test_set}"
      figures.by_field(mine, path, heading, field)


def _alone(rows: list[dict], fields: dict, field: str) -> list[dict]:
  """Rows that hold `field`, and name the other varied fields beside their
  method; where nothing but `field` differs."""
  found = {}
  for row in rows:
    others = [
      f"{name.rpartition('.')[2]}={value[row['run']]}"
      for name, value in fields.items()
      if name != field
    ]
    method = ", ".join([row["method"], *others])
    row = row | {field: fields[field][row["run"]], "method": method}
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
  found = {}
  for run in methods:
    for field, value in _made_by(root / run / "config.json").items():
      found.setdefault(field, {})[run] = value
  return {
    field: value
    for field, value in sorted(found.items())
    if value.keys() == methods.keys()
    and len({(methods[run], there) for run, there in value.items()})
    > len(set(methods.values()))
  }


def _made_by(file: pathlib.Path) -> dict:
  """{section.field: value} of a saved config, lists as text; nothing if there
  is none."""
  config = json.loads(file.read_text()) if file.exists() else {}
  made = {name: config[name] for name in config if name not in NOT_MADE_BY}
  return {
    field: str(value) if isinstance(value, list) else value
    for field, value in flatten_dict(made, sep=".").items()
  }
