"""Results of many workdirs: tables, figures and a page, and what is missing."""

import json
import pathlib

from flax.traverse_util import flatten_dict

from lengthgen_jax.errors import UsageError, check, reading
from lengthgen_jax.results import (
  figures,
  formats,
  html_report,
  records,
  schema,
  tables,
)

# Parts of a config that say how a run was saved or called; of the others those
# that say how it was tested aside, they say how it was made.
CALLED = "checkpoint", "task", "method", "overrides", "seeds"


def run(root: pathlib.Path, tested: tuple[str, ...] = ()) -> str:
  """Writes a report of all results.jsonl below `root`.

  report.md, report.tex and report.csv are the tables, report.html is a page
  that needs nothing else. Figures are EM and (where it was measured) edit
  distance by length, by repetition and by multiplicity, and EM by every number
  in the configs that was varied.

  Args:
    root: folder of workdirs.
    tested: parts of a config that say how a run was tested.

  Returns:
    The tables, in Markdown.

  Raises:
    UsageError: there are no results, a file is of another version, or a
      run's config is not beside it.
  """
  rows, configs = read(root)
  made = {run: made_by(own, tested) for run, own in configs.items()}
  exact = schema.of_metric(rows, "em")
  check(exact, f"--workdir={root}: no results.jsonl with exact match below it")
  said = missing(rows, configs)
  edits = schema.of_metric(rows, "edit")
  grids = [tables.of_runs(rows)]
  parts = [formats.markdown(grids[0])]
  if edits:
    grids.append(tables.of_runs(rows, "edit"))
    parts += ["Edit distance, % of the output:", formats.markdown(grids[-1])]
  parts += [f"Missing: {line}." for line in said]
  text = "\n\n".join(parts)
  records.write_text(root / "report.md", text + "\n")
  latex = [formats.latex(grid, len(tables.NAMES)) for grid in grids]
  records.write_text(root / "report.tex", "\n\n".join(latex) + "\n")
  records.write_text(root / "report.csv", formats.numbers(rows))
  drawn, apart = [], {}
  for row in exact + edits:
    apart.setdefault((row["task"], row["width"]), []).append(row)
  for (task, width), mine in sorted(apart.items()):
    title, name = f"{task}, width={width}", f"{task}_{width}"
    drawn += draw(root / "figures", mine, made, title, name)
  html = html_report.page(f"Results below {root.name}", rows, said, drawn)
  records.write_text(root / "report.html", html)
  return text


def read(root: pathlib.Path) -> tuple[list[dict], dict]:
  """Rows of all runs below a folder, which name their run, and {run: config},
  those without results too; UsageError as in `run`."""
  rows, found = [], sorted(root.rglob("results.jsonl"))
  for file in found:
    own = records.read_results(file)
    name = str(file.parent.relative_to(root))
    rows += [row | {"run": name} for row in own]
  for file in found:
    path = file.with_name("config.json")
    check(
      path.exists(), f"{file}: no config.json beside it says how it was made"
    )
  configs = {}
  for file in sorted(root.rglob("config.json")):
    with reading(f"{file}: cannot be read"):
      config = json.loads(file.read_text())
    try:
      asked(config)
    except (AttributeError, TypeError) as error:
      raise UsageError(f"{file}: cannot be read (it is no config)") from error
    configs[str(file.parent.relative_to(root))] = config
  return rows, configs


def asked(config: dict) -> tuple[set, set]:
  """(seeds, test lengths) of a saved config."""
  lengths = config.get("eval", {}).get("lengths", ())
  return set(config.get("seeds", ())), set(lengths)


def missing(rows: list[dict], configs: dict) -> list[str]:
  """What was asked for and is not there, a line for each run."""
  said = []
  for run, config in configs.items():
    own = [r for r in schema.of_metric(rows, "em") if r["run"] == run]
    if not own:
      said.append(f"{run} has no results yet")
      continue
    seeds, lengths = asked(config)
    for stage in sorted({row["stage"] for row in own}):
      there = {row["seed"] for row in own if row["stage"] == stage}
      if seeds - there:
        text = ", ".join(map(str, sorted(seeds - there)))
        said.append(f"{run} ({stage}) lacks seeds {text}")
    lengths = sorted(lengths - {row["length"] for row in own})
    if lengths:
      said.append(f"{run} lacks lengths {', '.join(map(str, lengths))}")
  return said


def draw(
  folder: pathlib.Path, rows: list[dict], made: dict, title: str, name: str
) -> list:
  """The figures of one task and width; their paths. `made` is {run: made_by}
  of their configs."""
  names = {
    ("em", "length"): name,
    ("em", "repetition"): f"{name}_repetition",
    ("em", "multiplicity"): f"{name}_multiplicity",
    ("em", "test_set"): f"{name}_hard",
    ("edit", "length"): f"{name}_edit",
    ("edit", "repetition"): f"{name}_repetition_edit",
    ("edit", "multiplicity"): f"{name}_multiplicity_edit",
  }
  drawn = figures.of_run(rows, folder, title, names)
  exact = [
    row
    for row in schema.of_metric(rows, "em")
    if figures.against(row) == "length"
  ]
  fields = varied(made, exact)
  for field, values in fields.items():
    if not {type(value) for value in values.values()} <= {int, float}:
      continue
    there = _alone(exact, fields, field)
    for test_set in sorted({row["test_set"] for row in there}):
      mine = [row for row in there if row["test_set"] == test_set]
      path = folder / f"{name}_{test_set}_by_{field}.png"
      heading = f"{title}, test set: {test_set}"
      drawn.append(figures.by_field(mine, path, heading, field))
  return drawn


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


def varied(made: dict, rows: list[dict]) -> dict:
  """{field: {run: value}} of what differs between runs of a method."""
  methods = {row["run"]: row["method"] for row in rows}
  found = {}
  for run in methods:
    for field, value in made[run].items():
      found.setdefault(field, {})[run] = value
  return {
    field: value
    for field, value in sorted(found.items())
    if value.keys() == methods.keys()
    and len({(methods[run], there) for run, there in value.items()})
    > len(set(methods.values()))
  }


def made_by(config: dict, tested: tuple[str, ...]) -> dict:
  """{section.field: value} of a saved config but for parts that say how a run
  was tested or called; lists as text."""
  aside = (*CALLED, *tested)
  made = {name: config[name] for name in config if name not in aside}
  return {
    field: str(value) if isinstance(value, list) else value
    for field, value in flatten_dict(made, sep=".").items()
  }
