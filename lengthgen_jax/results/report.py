"""The report of many workdirs: tables, figures, a page, and missing results."""

import json
import pathlib

from flax.traverse_util import flatten_dict

from lengthgen_jax.errors import UsageError, check, file_errors
from lengthgen_jax.results import (
  figures,
  formats,
  html_report,
  records,
  schema,
  tables,
)

# Parts of a config that say how a run was saved or called. The other parts say
# how it was trained, except those that say how it was tested.
CALLED = "checkpoint", "task", "method", "overrides", "seeds"


def run(root: pathlib.Path, tested: tuple[str, ...] = ()) -> str:
  """Writes a report of all results.jsonl below `root`.

  report.md, report.tex and report.csv hold the tables; report.html is a
  self-contained page. Figures show EM and (where it was measured) edit distance
  by length, by repetition and by multiplicity, and EM by every number in the
  configs that was varied.

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
  settings = {run: made_by(config, tested) for run, config in configs.items()}
  exact_rows = schema.of_metric(rows, "em")
  check(
    exact_rows, f"--workdir={root}: no results.jsonl with exact match below it"
  )
  missing_lines = missing(rows, configs)
  edit_rows = schema.of_metric(rows, "edit")
  grids = [tables.of_runs(rows)]
  parts = [formats.markdown(grids[0])]
  if edit_rows:
    grids.append(tables.of_runs(rows, "edit"))
    parts += ["Edit distance, % of the output:", formats.markdown(grids[-1])]
  parts += [f"Missing: {line}." for line in missing_lines]
  text = "\n\n".join(parts)
  records.write_text(root / "report.md", text + "\n")
  latex = [formats.latex(grid, len(tables.NAMES)) for grid in grids]
  records.write_text(root / "report.tex", "\n\n".join(latex) + "\n")
  records.write_text(root / "report.csv", formats.numbers(rows))
  drawn, rows_by_size = [], {}
  for row in exact_rows + edit_rows:
    rows_by_size.setdefault((row["task"], row["width"]), []).append(row)
  for (task, width), subset in sorted(rows_by_size.items()):
    title, name = f"{task}, width={width}", f"{task}_{width}"
    drawn += draw(root / "figures", subset, settings, title, name)
  html = html_report.page(
    f"Results below {root.name}", rows, missing_lines, drawn
  )
  records.write_text(root / "report.html", html)
  return text


def read(root: pathlib.Path) -> tuple[list[dict], dict[str, dict]]:
  """Reads the results and the configs of all runs below a folder.

  Returns:
    The rows, which name their run, and {run: config}, with the runs that have
    no results yet.

  Raises:
    UsageError: as in `run`.
  """
  rows, files = [], sorted(root.rglob("results.jsonl"))
  for file in files:
    file_rows = records.read_results(file)
    name = str(file.parent.relative_to(root))
    rows += [row | {"run": name} for row in file_rows]
  for file in files:
    path = file.with_name("config.json")
    check(
      path.exists(), f"{file}: no config.json beside it says how it was made"
    )
  configs = {}
  for file in sorted(root.rglob("config.json")):
    with file_errors(f"{file}: cannot be read"):
      config = json.loads(file.read_text())
    try:
      asked(config)
    except (AttributeError, TypeError) as error:
      raise UsageError(f"{file}: cannot be read (it is no config)") from error
    configs[str(file.parent.relative_to(root))] = config
  return rows, configs


def asked(config: dict) -> tuple[set, set]:
  """Returns (seeds, test lengths) that a saved config asks for."""
  lengths = config.get("eval", {}).get("lengths", ())
  return set(config.get("seeds", ())), set(lengths)


def missing(rows: list[dict], configs: dict[str, dict]) -> list[str]:
  """Returns lines of text on the results that configs ask for and rows lack."""
  messages = []
  for run, config in configs.items():
    run_rows = [r for r in schema.of_metric(rows, "em") if r["run"] == run]
    if not run_rows:
      messages.append(f"{run} has no results yet")
      continue
    seeds, lengths = asked(config)
    for stage in sorted({row["stage"] for row in run_rows}):
      seeds_present = {row["seed"] for row in run_rows if row["stage"] == stage}
      if seeds - seeds_present:
        text = ", ".join(map(str, sorted(seeds - seeds_present)))
        messages.append(f"{run} ({stage}) lacks seeds {text}")
    lengths = sorted(lengths - {row["length"] for row in run_rows})
    if lengths:
      messages.append(f"{run} lacks lengths {', '.join(map(str, lengths))}")
  return messages


def draw(
  folder: pathlib.Path,
  rows: list[dict],
  settings: dict[str, dict],
  title: str,
  name: str,
) -> list[pathlib.Path]:
  """Draws the figures of one task and width and returns their paths.

  Args:
    folder: where the figures are written.
    rows: rows of one task and width.
    settings: what `made_by` returns, by run.
    title: title of the figures.
    name: text with which the names of the files begin.
  """
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
  fields = varied(settings, exact)
  for field, values in fields.items():
    if not {type(value) for value in values.values()} <= {int, float}:
      continue
    field_rows = _alone(exact, fields, field)
    for test_set in sorted({row["test_set"] for row in field_rows}):
      subset = [row for row in field_rows if row["test_set"] == test_set]
      path = folder / f"{name}_{test_set}_by_{field}.png"
      heading = f"{title}, test set: {test_set}"
      drawn.append(figures.by_field(subset, path, heading, field))
  return drawn


def _alone(rows: list[dict], fields: dict, field: str) -> list[dict]:
  """Returns the rows of runs that differ from others in `field` alone.

  Each of them holds its value of `field`, and names the other varied fields
  beside its method.

  Args:
    rows: rows of any runs.
    fields: what `varied` returns.
    field: one of them.
  """
  rows_by_method = {}
  for row in rows:
    others = [
      f"{name.rpartition('.')[2]}={value[row['run']]}"
      for name, value in fields.items()
      if name != field
    ]
    method = ", ".join([row["method"], *others])
    row = row | {field: fields[field][row["run"]], "method": method}
    rows_by_method.setdefault(method, []).append(row)
  return [
    row
    for group in rows_by_method.values()
    if len({row[field] for row in group}) > 1
    for row in group
  ]


def varied(settings: dict[str, dict], rows: list[dict]) -> dict[str, dict]:
  """Returns {field: {run: value}} of the fields that vary within a method.

  Args:
    settings: what `made_by` returns, by run.
    rows: rows that name their run and method.
  """
  methods = {row["run"]: row["method"] for row in rows}
  values = {}
  for run in methods:
    for field, value in settings[run].items():
      values.setdefault(field, {})[run] = value
  return {
    field: value
    for field, value in sorted(values.items())
    if value.keys() == methods.keys()
    and len({(methods[run], setting) for run, setting in value.items()})
    > len(set(methods.values()))
  }


def made_by(config: dict, tested: tuple[str, ...]) -> dict:
  """Returns {section.field: value} of the settings that a run was trained with.

  Args:
    config: a saved config.
    tested: parts of it that say how a run was tested; they are left out, and
      so are those that say how it was called.

  Returns:
    Values by field, lists as text.
  """
  excluded = (*CALLED, *tested)
  sections = {name: config[name] for name in config if name not in excluded}
  return {
    field: str(value) if isinstance(value, list) else value
    for field, value in flatten_dict(sections, sep=".").items()
  }
