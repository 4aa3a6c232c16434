"""Writes the pages of docs/results: archived results and published numbers."""

import pathlib
import shlex
from typing import Any, NamedTuple

from lengthgen_jax.papers import overview, provenance
from lengthgen_jax.papers.experiments import SIZES, Row, Run, run_of
from lengthgen_jax.papers.provenance import Archive, rows_of
from lengthgen_jax.papers.runs import TABLES, config_changes, runs_of
from lengthgen_jax.probes import row_figures, row_tables
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
time; [all of them](report.html) are a page that sorts and filters. `cpu` is
sized for two cores, `paper` for an accelerator.

{table}

```bash
python launch/tables.py products --plan
python launch/tables.py products
python launch/tables.py --check parity-window_cpi
python launch/tables.py --pages
```

The first line says what is missing of a table here and how long it took
elsewhere, the second makes it (with `--results=DIR` all of it, kept in another
folder), the third makes one row again and compares, the last one makes these
pages of the rows.
{reach}"""

LEGEND = (
  "Exact match in %: every token of the output and the end token right. Ours:"
  " median of the seeds, (worst seed where it differs), [one-sided 95 % lower"
  " bound of the worst]; n samples per seed and length. Frontier: the longest"
  " length with at least 99 % by the lower bound, ≥ where nothing failed as far"
  " as was looked, ∀ where every seed is proved right at every length."
)

CERTIFICATES = (
  "Of so many seeds; inputs that differ in what the model's rows see, and the"
  " smallest margin among them, from the least to the greatest of the seeds."
  " [What this proves](../certificates.md)."
)

# A description of each hard test set, by the prefix of its name.
HARD_TEST_SETS = {
  "chain_": "one carry that travels so many places",
  "carry": "the longest chain of carries",
  "nines": "99…9+1",
  "zeros": "0+0",
  "short": "numbers of up to a tenth of the length",
  "repeated": "one digit each",
  "unequal": "operands of unequal lengths",
  "all_equal": "all items equal",
  "two_values": "items of two values",
  "near_ties": "of three neighboring ones",
  "sorted": "in order",
  "reversed": "in reverse",
  "lone": "one item among such as change nothing",
  "deep": "brackets up to the bound and down to zero",
  "broken": "one bracket another than in well-nested ones",
  "uniform": "brackets at random",
}


def write(
  results: pathlib.Path, readme: pathlib.Path | None = None
) -> list[pathlib.Path]:
  """Writes the pages of all archived rows, and the tables of a README.

  Args:
    results: folder of the pages, with the archive in its folder rows.
    readme: the README, None for none.

  Returns:
    The paths of the pages, the index first.
  """
  archive = provenance.read_archive(results / "rows")
  index, paths, gaps = [["table", *SIZES, "what"]], [], []
  for name, table in TABLES.items():
    cells = []
    for size in SIZES:
      runs = runs_of(name, size)
      done = sum(run in archive for run in runs)
      path = results / f"{name}{'' if size == 'cpu' else '_paper'}.md"
      text = f"{done} of {len(runs)} runs" if runs else ""
      if done < len(runs):
        gaps.append(f"{name} ({size}): {text} have been made")
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
    records.write_text(paths[-1], html_report.page("Kept results", rows, gaps))
  paths.insert(0, results / "README.md")
  reach = overview.reach_section(results, archive)
  text = INDEX.format(table=tables.to_markdown(index), reach=reach)
  records.write_text(paths[0], text)
  if readme:
    text = overview.put_tables(readme.read_text(), archive)
    records.write_text(readme, text)
    paths.append(readme)
  return paths


class Entry(NamedTuple):
  """An Entry is a row of a table and the results that fill it.

  Attributes:
    row: the row, with the paper's numbers.
    run: the name of the run.
    result_rows: the result rows of the run's stage; [] if it is not archived.
    lines: their exact match by length, a line for each test set.
  """

  row: Row
  run: str
  result_rows: list[dict]
  lines: list[summary.Line]


def make_entry(row: Row, run: str, archive: Archive) -> Entry:
  """Returns the Entry of a row, with its results from the archive.

  Raises:
    UsageError: the results of a test set are of different conditions.
  """
  rows = [x for x in rows_of(archive, run) if x["stage"] == row.stage]
  others = [x for x in rows if x["metric"] in ("frontier", "certified")]
  test_sets, lines = {}, []
  for exact_row in records.of_metric(rows, "em"):
    test_sets.setdefault(exact_row["test_set"], []).append(exact_row)
  for test_set, exact_rows in test_sets.items():
    summary.single_line(exact_rows, f"{run}, {row.stage}, {test_set}")
    lines += summary.lines(exact_rows + others)
  return Entry(row, run, rows, lines)


def page(name: str, size: str, archive: Archive, results: pathlib.Path) -> str:
  """Returns the Markdown page of a table, and draws its figures.

  Args:
    name: the key of the table in TABLES.
    size: one of SIZES.
    archive: the archived runs.
    results: the folder of the pages; figures are written to its subfolder
      "figures".
  """
  table, runs = TABLES[name], runs_of(name, size)
  entries = [
    make_entry(row, run_of(row, table, size).name, archive)
    for row in table.rows_at(size)
  ]
  flag = "" if size == "cpu" else " --size=paper"
  command = (
    f"Made by `python launch/tables.py {name}{flag}`, which skips runs whose"
    " rows are kept here; `--results=DIR` begins anew."
  )
  main_table, *parts = table_paragraphs(entries, table.source)
  parts = [main_table, table.about, LEGEND, command, *parts]
  prefix = name if size == "cpu" else f"{name}_paper"
  folder, figure_rows = results / "figures", []
  for entry in entries:
    labels: dict[str, Any] = {"method": entry.row.model, "stage": "train"}
    if table.x_field and entry.run in archive:
      section, _, field = table.x_field.partition(".")
      value = archive[entry.run].head["config"][section][field]
      labels |= {table.x_field: value} if value else {}
    figure_rows += [row | labels for row in entry.result_rows]
  drawn = figures.draw_table(prefix, figure_rows, folder, table.x_field)
  for caption, run, path in table.figures:
    file = folder / run / pathlib.Path(path).name
    if file.exists():
      drawn.append((caption, file))
  probes = {entry.row.model: probe_rows(entry) for entry in entries}
  probes = {model: rows for model, rows in probes.items() if rows}
  if table.probes and probes:
    path = folder / f"{prefix}_probes.png"
    row_figures.draw_comparison(probes, path, "what models do inside")
    drawn.insert(0, ("probes against length", path))
    parts += [
      "## Inside",
      "Rates in %: median of the seeds (lowest seed), by length.",
      tables.to_markdown(row_tables.comparison_table(probes)),
    ]
  if drawn:
    parts.append("## Figures")
    parts += [f"![{text}]({path.relative_to(results)})" for text, path in drawn]
  parts += command_section(runs, archive)
  return "\n\n".join([f"# {table.title}", *parts]) + "\n"


def probe_rows(entry: Entry) -> list[dict]:
  """Returns the probe rows of an entry, except those of single heads."""
  probes = filter(provenance.is_probe, entry.result_rows)
  return [row for row in probes if row["head"] is None]


def table_paragraphs(entries: list[Entry], source: str = "paper") -> list[str]:
  """Returns the paragraphs of a page that hold tables, as Markdown.

  These are the main table, the runs that were not made yet, and the tables of
  hard test sets and of certificates.

  Args:
    entries: the rows of the main table, all of one size.
    source: the name of those who published the numbers beside ours.
  """
  parts = [tables.to_markdown(main_table(entries, source))]
  done = {entry.run for entry in entries if entry.lines}
  runs = dict.fromkeys(entry.run for entry in entries)
  if gaps := [f"`{run}`" for run in runs if run not in done]:
    parts.append(
      f"{len(gaps)} of {len(runs)} runs have not been made yet:"
      f" {', '.join(gaps)}."
    )
  hard = hard_table(entries)
  if len(hard) > 1:
    test_sets = {line[2] for line in hard[1:]}
    meanings = [
      f"`{name}` {meaning}"
      for name, meaning in HARD_TEST_SETS.items()
      if any(test_set.startswith(name) for test_set in test_sets)
    ]
    parts += [
      "## Hard and odd inputs",
      f"Exact match in %, median (worst seed): {', '.join(meanings)}.",
      f"<details><summary>{len(hard) - 1} lines</summary>",
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
  """Returns the cells of the main table: published numbers and ours, by length.

  The first line is the head.
  """
  done = {entry.run for entry in entries if entry.lines}
  shown = [
    (entry, [line for line in entry.lines if not line.is_stress])
    for entry in entries
  ]
  lines = [line for _, entry_lines in shown for line in entry_lines]
  lengths = {n for entry in entries for n in entry.row.paper}
  lengths = sorted(lengths | {n for line in lines for n in line.cells})
  test_sets = {line.labels["test_set"] for line in lines}
  names_of = lambda task, model, test_set: (
    [task, model, test_set] if len(test_sets) > 1 else [task, model]
  )
  head = [*names_of("task", "model", "test set"), "", *map(str, lengths)]
  table = [[*head, "frontier", "seeds", "n", "width"]]
  for entry, lines in shown:
    task, model, paper = entry.row.task, entry.row.model, entry.row.paper
    names = names_of(task, model, "")
    if paper:
      cells = [f"{paper.get(n, '')}" for n in lengths]
      table.append([*names, source, *cells, "", "", "", ""])
    if not lines:
      status = "not needed" if entry.row.stage == "certify" else "no rows"
      status = status if entry.run in done else "not run yet"
      cells = ["–"] * len(lengths)
      table.append([*names, "ours", *cells, "", status, "", ""])
    for line in lines:
      names = names_of(task, model, line.labels["test_set"])
      cells = [tables.cell_text(line, n, "") for n in lengths]
      cells += [tables.frontier_text(line), line.seed_count + line.proof]
      cells += [sample_counts(line.cells), line.labels["width"]]
      table.append([*names, "**ours**", *cells])
  return table


def sample_counts(cells: dict[int, summary.Cell]) -> str:
  """Returns samples per seed: "1000 (300 at 200)" where one length has fewer.

  Args:
    cells: cells of a line by length.
  """
  counts = [cell.n for cell in cells.values()]
  usual = max(counts, key=counts.count)
  others = [f"{cell.n} at {n}" for n, cell in cells.items() if cell.n != usual]
  return f"{usual} ({', '.join(others)})" if others else str(usual)


def hard_table(entries: list[Entry]) -> list[list[str]]:
  """Returns the cells of a table of exact match on hard test sets.

  The first line is the head.
  """
  shown = [
    (entry.row, line)
    for entry in entries
    for line in entry.lines
    if line.is_stress
  ]
  lengths = sorted({n for _, line in shown for n in line.cells})
  table = [["task", "model", "test set", *map(str, lengths)]]
  for row, line in shown:
    cells = map(line.cells.get, lengths)
    texts = [tables.with_worst(cell) if cell else "" for cell in cells]
    table.append([row.task, row.model, line.labels["test_set"], *texts])
  return table


def command_section(runs: dict[str, Run], archive: Archive) -> list[str]:
  """Returns paragraphs with the commands of runs, and a table that says when
  and where the archived ones were made."""
  lines = [
    shlex.join(["lengthgen", *words])
    for run in runs.values()
    for words in run.commands()
  ]
  parts = ["## Commands", "```bash\n" + "\n".join(lines) + "\n```"]
  table = [["run", "seconds", "machine", "date", "commit", "versions", ""]]
  for run in runs.values():
    if run.name in archive:
      head = archive[run.name].head
      remark = config_changes(run, head["config"])
      if head["first_stage"] and not remark:
        remark = f"first stage of {head['first_stage']}"
      versions = (f"{name} {x}" for name, x in head["versions"].items())
      cells = [run.name, f"{head['seconds'] or '–'}", head["machine"]]
      cells += [head["date"], head["commit"][:12], ", ".join(versions), remark]
      table.append(cells)
  return [*parts, tables.to_markdown(table)] if len(table) > 1 else parts
