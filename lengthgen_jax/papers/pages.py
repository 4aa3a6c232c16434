"""This module writes the pages of docs/results: archived results beside
published numbers."""

import itertools
import pathlib
import shlex
from typing import Any, NamedTuple

from lengthgen_jax.papers import overview, provenance
from lengthgen_jax.papers.experiments import SIZES, Run, TableRow, run_of
from lengthgen_jax.papers.provenance import Archive, rows_of
from lengthgen_jax.papers.runs import TABLES, config_changes, runs_of
from lengthgen_jax.probes.figures import draw_comparison
from lengthgen_jax.probes.tables import comparison_table
from lengthgen_jax.results import (
  figures,
  html_report,
  records,
  summary,
  tables,
)

INDEX = """# Results

Tables and figures of the papers, and what lies beyond them, each made by one
command, with published numbers beside ours. The rows behind every number are in
[rows](rows), with the whole config, the machine, the commit, the day and the
time; [a page that sorts and filters](report.html) has the exact match and the
edit distance of all runs. `cpu` is sized for two cores, `paper` for an
accelerator.

{table}

```bash
python launch/tables.py products --plan
python launch/tables.py products
python launch/tables.py --check parity-window_cpi
python launch/tables.py --pages
```

The first command lists the runs of a table that are left to make: their rows or
probes are not kept here, or their training has another config now; it says how
long the kept ones took. The second makes them (with `--results=DIR1
--root=DIR2` all of the table's, kept in other folders); the third makes one run
again and compares its rows; the last one writes these pages from the rows.
{reach}"""

LEGEND = (
  "Exact match in %: every token of the output and the end token right. Ours:"
  " median of the seeds, (worst seed where it differs), [one-sided 95 % lower"
  " bound of the worst]; n samples per seed and length. Frontier: the longest"
  " length with at least 99 % by the lower bound, ≥ where nothing failed as far"
  " as was looked, ∀ where both checkers proved every seed right at every"
  " length (∀¹ beside seeds: one checker alone did)."
)

CERTIFICATES = (
  "Right: for how many of the seeds every case is. Cases: inputs that differ in"
  " what the model's rows see. Smallest margin: of all cases. A range is over"
  " the seeds. Rounding: the largest bound of any case, of the seeds that have"
  " one. Not right: seeds that are wrong, undecided or not tried. [What this"
  " proves](../certificates.md)."
)

# A description of each hard test set, by what its name begins with.
HARD_TEST_SETS = {
  "chain_": "one carry that travels so many digits",
  "carry": "the longest chain of carries",
  "nines": "99…9+1",
  "zeros": "all digits zero",
  "short": "numbers of up to a tenth of the length",
  "repeated": "one digit repeated in each operand",
  "unequal": "operands of unequal lengths",
  "all_equal": "all items equal",
  "two_values": "items of two values",
  "near_ties": "items of three neighboring values",
  "sorted": "in order",
  "reversed": "in reverse",
  "lone": "one item among others that change nothing",
  "deep": "brackets up to the bound and down to zero",
  "broken": "well-nested brackets with one of them changed",
  "uniform": "brackets at random",
  "near_keys": "consecutive keys, most with the same first token",
}


def write(
  results: pathlib.Path, readme: pathlib.Path | None = None
) -> list[pathlib.Path]:
  """Writes the pages of all archived rows, and the tables of a README.

  Args:
    results: the folder of the pages; the archive is its folder "rows".
    readme: the README whose tables are replaced, None for none.

  Returns:
    The paths of all files that were written, but for figures: the index, the
    pages of tables, report.html if there are rows, and the README if there is
    one.

  Raises:
    UsageError: the archive cannot be read, results that belong together are of
      different conditions, or the README lacks the comments for its tables.
  """
  archive = provenance.read_archive(results / "rows")
  index, paths, missing = [["table", *SIZES, "what"]], [], []
  for name, table in TABLES.items():
    cells = []
    for size in SIZES:
      runs = runs_of(name, size)
      done = sum(run in archive for run in runs)
      path = results / f"{name}{'' if size == 'cpu' else '_paper'}.md"
      text = f"{done} of {len(runs)} runs" if runs else ""
      if done < len(runs):
        missing.append(f"{name} ({size}): {text} have been made")
      if runs and (done or size == "cpu"):
        records.write_text(path, page(name, size, archive, results))
        paths.append(path)
        text = f"[{text}]({path.name})"
      cells.append(text)
    index.append([name, *cells, table.title])
  rows = [
    row
    for run in archive.values()
    for row in run.rows
    if not provenance.is_probe(row)
  ]
  if rows:
    paths.append(results / "report.html")
    report = html_report.page("Kept results", rows, missing)
    records.write_text(paths[-1], report)
  paths.insert(0, results / "README.md")
  reach = overview.reach_section(results, archive)
  text = INDEX.format(table=tables.to_markdown(index), reach=reach)
  records.write_text(paths[0], text)
  if readme:
    text = overview.replace_tables(readme.read_text(encoding="utf-8"), archive)
    records.write_text(readme, text)
    paths.append(readme)
  return paths


class Entry(NamedTuple):
  """An Entry is a row of a table with the results that fill it.

  Attributes:
    row: the row, with the published numbers.
    run: the name of the run.
    result_rows: the result rows of the run in the row's stage; [] if there are
      none.
    curves: the curve of exact match by length of each test set.
  """

  row: TableRow
  run: str
  result_rows: list[dict]
  curves: list[summary.Curve]


def make_entry(row: TableRow, run: str, archive: Archive) -> Entry:
  """Returns the Entry of a row and its run, with results from the archive.

  Raises:
    UsageError: the results of a test set are of different conditions.
  """
  result_rows = [
    result_row
    for result_row in rows_of(archive, run)
    if result_row["stage"] == row.stage
  ]
  frontiers = records.of_metric(result_rows, "frontier")
  certificates = records.of_metric(result_rows, "certified")
  rows_by_test_set, curves = {}, []
  for exact_row in records.of_metric(result_rows, "em"):
    rows_by_test_set.setdefault(exact_row["test_set"], []).append(exact_row)
  for test_set, exact_rows in rows_by_test_set.items():
    # This raises UsageError if the rows are of more than one curve.
    summary.single_curve(exact_rows, f"{run}, {row.stage}, {test_set}")
    curves += summary.curves(exact_rows + frontiers + certificates)
  return Entry(row, run, result_rows, curves)


def page(name: str, size: str, archive: Archive, results: pathlib.Path) -> str:
  """Returns the Markdown page of a table, and draws its figures.

  Args:
    name: the key of the table in TABLES.
    size: one of SIZES.
    archive: the archived runs.
    results: the folder of the pages; figures are written to its folder
      "figures".

  Raises:
    UsageError: as in `make_entry`.
  """
  table, runs = TABLES[name], runs_of(name, size)
  entries = [
    make_entry(row, run_of(row, table, size).name, archive)
    for row in table.rows_at(size)
  ]
  flag = "" if size == "cpu" else " --size=paper"
  command = (
    f"Made by `python launch/tables.py {name}{flag}`, which skips runs whose"
    " rows are kept here; `--results=DIR1 --root=DIR2` begins anew."
  )
  main_table, *parts = table_paragraphs(entries, table.source)
  parts = [main_table, table.about, LEGEND, command, *parts]
  prefix = name if size == "cpu" else f"{name}_paper"
  folder, figure_rows = results / "figures", []
  # The names that the table has for each task of the results. A figure has the
  # rows of one task, so it may have rows of several of these names.
  task_names = {}
  for entry in entries:
    for row in entry.result_rows:
      task_names.setdefault(row["task"], set()).add(entry.row.task)
  for entry in entries:
    method = entry.row.model
    if any(len(task_names[row["task"]]) > 1 for row in entry.result_rows):
      method = f"{entry.row.task}: {method}"
    # The name of a curve would say any other stage; here the method says it.
    labels: dict[str, Any] = {"method": method, "stage": "train"}
    if entry.row.stage == "finetune" and entry.result_rows:
      # Seeds are finetuned in more or fewer rounds, and are one curve.
      labels["step"] = max(row["step"] for row in entry.result_rows)
    if table.x_field and entry.run in archive:
      section, _, field = table.x_field.partition(".")
      value = archive[entry.run].header["config"][section][field]
      # data.size=0, where no example repeats, has no place on the axis.
      labels |= {table.x_field: value} if value else {}
    figure_rows += [row | labels for row in entry.result_rows]
  drawn = figures.draw_table(prefix, figure_rows, folder, table.x_field)
  for caption, run, path in table.figures:
    file = folder / run / pathlib.Path(path).name
    if run in runs and file.exists():
      drawn.append((caption, file))
  probes = {entry.row.model: probe_rows(entry) for entry in entries}
  probes = {model: rows for model, rows in probes.items() if rows}
  if table.probes and probes:
    path = folder / f"{prefix}_probes.png"
    draw_comparison(probes, path, "what models do inside")
    drawn.insert(0, ("probes against length", path))
    parts += [
      "## Inside",
      "Rates in %: median of the seeds (lowest seed), by length.",
      tables.to_markdown(comparison_table(probes)),
    ]
  if drawn:
    parts.append("## Figures")
    parts += [f"![{text}]({path.relative_to(results)})" for text, path in drawn]
  parts += command_section(runs, archive, table.probes)
  return "\n\n".join([f"# {table.title}", *parts]) + "\n"


def probe_rows(entry: Entry) -> list[dict]:
  """Returns the probe rows of an entry, except those of single heads."""
  probes = filter(provenance.is_probe, entry.result_rows)
  return [row for row in probes if row["head"] is None]


def table_paragraphs(entries: list[Entry], source: str = "paper") -> list[str]:
  """Returns the paragraphs of a page that hold tables, as Markdown.

  The first is the main table. A list of the runs that have not been made yet
  follows if there are any, and then, where there are such results, the tables
  of hard test sets and of certificates with their headings.

  Args:
    entries: the rows of the main table, all of one size.
    source: as in Table.
  """
  parts = [tables.to_markdown(main_table(entries, source))]
  done = {entry.run for entry in entries if entry.curves}
  runs = dict.fromkeys(entry.run for entry in entries)
  if gaps := [f"`{run}`" for run in runs if run not in done]:
    parts.append(
      f"{len(gaps)} of {len(runs)} runs have not been made yet:"
      f" {', '.join(gaps)}."
    )
  hard = hard_table(entries)
  if len(hard) > 1:
    test_sets = {test_set for _, _, test_set, *_ in hard[1:]}
    meanings = [
      f"`{name}` {meaning}"
      for name, meaning in HARD_TEST_SETS.items()
      if any(test_set.startswith(name) for test_set in test_sets)
    ]
    parts += [
      "## Hard and odd inputs",
      f"Exact match in %, median (worst seed): {', '.join(meanings)}.",
      f"<details><summary>{len(hard) - 1} rows</summary>",
      tables.to_markdown(hard),
      "</details>",
    ]
  certificates = tables.certificate_grid(
    (entry.row.task, entry.row.model, entry.result_rows) for entry in entries
  )
  if len(certificates) > 1:
    markdown = tables.to_markdown(certificates)
    parts += ["## Certificates", CERTIFICATES, markdown]
  return parts


def main_table(entries: list[Entry], source: str) -> list[list[str]]:
  """Returns the grid of the main table, header first: exact match by length,
  published and ours, without the hard test sets (eval.stress).

  `source` is what the published rows have in the column that tells them from
  ours.
  """
  runs_with_results = {entry.run for entry in entries if entry.curves}
  entry_curves = [
    [curve for curve in entry.curves if not curve.is_stress]
    for entry in entries
  ]
  all_curves = list(itertools.chain(*entry_curves))
  lengths = {n for entry in entries for n in entry.row.published}
  lengths = sorted(lengths | {n for curve in all_curves for n in curve.cells})
  test_sets = {curve.labels["test_set"] for curve in all_curves}
  names_of = lambda task, model, test_set: (
    [task, model, test_set] if len(test_sets) > 1 else [task, model]
  )
  header = [*names_of("task", "model", "test set"), "", *map(str, lengths)]
  grid = [[*header, "frontier", "seeds", "n", "width"]]
  for entry, curves in zip(entries, entry_curves, strict=True):
    task, model = entry.row.task, entry.row.model
    names = names_of(task, model, "")
    if published := entry.row.published:
      cells = [f"{published.get(n, '')}" for n in lengths]
      grid.append([*names, source, *cells, "", "", "", ""])
    if not curves:
      # Only models that a certificate finds wrong are finetuned.
      status = "not finetuned" if entry.row.stage == "finetune" else "no rows"
      if entry.run not in runs_with_results:
        status = "not run yet"
      cells = ["–"] * len(lengths)
      grid.append([*names, "ours", *cells, "", status, "", ""])
    for curve in curves:
      names = names_of(task, model, curve.labels["test_set"])
      cells = [tables.cell_text(curve, n, "") for n in lengths]
      cells += [tables.frontier_text(curve), curve.seeds_text + curve.proof]
      cells += [sample_counts(curve.cells), curve.labels["width"]]
      grid.append([*names, "**ours**", *cells])
  return grid


def sample_counts(cells: dict[int, summary.Cell]) -> str:
  """Returns the number of samples per seed as text: "1000", or "1000 (300 at
  200)" where other lengths than most have another number."""
  counts = [cell.n for cell in cells.values()]
  usual = max(counts, key=counts.count)
  others = [f"{cell.n} at {n}" for n, cell in cells.items() if cell.n != usual]
  return f"{usual} ({', '.join(others)})" if others else str(usual)


def hard_table(entries: list[Entry]) -> list[list[str]]:
  """Returns the grid of exact match on hard test sets, header first."""
  rows_and_curves = [
    (entry.row, curve)
    for entry in entries
    for curve in entry.curves
    if curve.is_stress
  ]
  lengths = sorted({n for _, curve in rows_and_curves for n in curve.cells})
  grid = [["task", "model", "test set", *map(str, lengths)]]
  for row, curve in rows_and_curves:
    cells = map(curve.cells.get, lengths)
    texts = [tables.with_worst(cell) if cell else "" for cell in cells]
    grid.append([row.task, row.model, curve.labels["test_set"], *texts])
  return grid


def command_section(
  runs: dict[str, Run], archive: Archive, probes: dict[str, Any]
) -> list[str]:
  """Returns paragraphs with the commands of runs, and a table that says when
  and where the archived ones were made.

  Its last column, without a heading, is a remark: how the config of training
  has changed since, or which other run trained the first stage. `probes` are
  the `Table.probes` of the page: {field: value} of the command that probes.
  """
  commands = [
    shlex.join(["lengthgen", *arguments])
    for run in runs.values()
    for arguments in run.commands(probes=probes)
  ]
  parts = ["## Commands", "```bash\n" + "\n".join(commands) + "\n```"]
  grid = [["run", "seconds", "machine", "date", "commit", "versions", ""]]
  for run in runs.values():
    if run.name in archive:
      header = archive[run.name].header
      remark = config_changes(run, header["config"])
      if header["first_stage"] and not remark:
        remark = f"first stage of {header['first_stage']}"
      versions = (f"{name} {x}" for name, x in header["versions"].items())
      commit, dash, dirty = header["commit"].partition("-")
      grid.append(
        [
          run.name,
          f"{header['seconds'] or '–'}",
          header["machine"],
          header["date"],
          commit[:12] + dash + dirty,
          ", ".join(versions),
          remark,
        ]
      )
  return [*parts, tables.to_markdown(grid)] if len(grid) > 1 else parts
