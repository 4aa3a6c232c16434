"""The pages of archived rows are written here: one for each table, an index,
and an HTML page of all rows."""

import pathlib

import beyond
import listed
import made
from table import SIZES

from lengthgen_jax.probes import comparison
from lengthgen_jax.results import (
  archive,
  figures,
  html_report,
  markdown_report,
  reach,
  records,
  tables,
)

ALL = "report.html"


def write(
  results: pathlib.Path, kept_runs: dict[str, tuple[dict, list[dict]]]
) -> list[pathlib.Path]:
  """Writes the pages.

  Args:
    results: folder of the pages.
    kept_runs: (head, rows) of archived runs, by name.

  Returns:
    The paths of the pages, the index first.
  """
  changed, written, missing = {}, [], []
  index = [["table", "cpu", "paper", "what"]]
  for size in SIZES:
    for name in listed.TABLES:
      for run in listed.runs(name, size).values():
        if run.name in kept_runs and run.name not in changed:
          saved = kept_runs[run.name][0]["config"]
          changed[run.name] = made.changed(run, saved)
  for name, table in listed.TABLES.items():
    line = [name]
    for size in SIZES:
      runs = listed.runs(name, size)
      done = sum(run in kept_runs for run in runs)
      path = results / f"{name}{'' if size == 'cpu' else '_paper'}.md"
      wanted = runs and (done or size == "cpu")
      if wanted:
        text = text_of(name, size, kept_runs, changed, results)
        records.write_text(path, text)
        written.append(path)
      progress = f"{done} of {len(runs)} runs" if runs else ""
      if done < len(runs):
        missing.append(f"{name} ({size}): {progress} have been made")
      line.append(f"[{progress}]({path.name})" if wanted else progress)
    index.append([*line, table.title])
  rows = [
    row
    for _, run_rows in kept_runs.values()
    for row in run_rows
    if not archive.is_probe(row)
  ]
  if records.of_metric(rows, "em"):
    records.write_text(
      results / ALL, html_report.page("Kept results", rows, missing)
    )
    written.append(results / ALL)
  first = results / "README.md"
  text = INDEX.format(
    table=tables.to_markdown(index), far=far(results, kept_runs)
  )
  records.write_text(first, text)
  return [first, *written]


def far(
  results: pathlib.Path, kept_runs: dict[str, tuple[dict, list[dict]]]
) -> str:
  """Draws how far beyond training our models and published ones are right.

  Args:
    results: folder of the pages.
    kept_runs: (head, rows) of archived runs, by name.

  Returns:
    A section of the index with the figure; "" where nothing was measured.
  """
  marks = [
    reach.farthest(task, who, kept_runs.get(run, ({}, []))[1])
    for run, (task, who) in beyond.REACH.items()
  ]
  ours = [mark for mark in marks if mark]
  if not ours:
    return ""
  units = {mark.task: mark.unit for mark in ours}
  published = [
    reach.Mark(*reference, units[reference.task])
    for reference in beyond.PUBLISHED
    if reference.task in units
  ]
  path = results / "figures" / "reach.png"
  reach.reach_figure(ours, published, path, "how far tests go beyond training")
  table = tables.to_markdown(reach.reach_grid(ours, published))
  return FAR.format(figure=path.relative_to(results), table=table)


FAR = """
## How far

The longest test length at which, as at all shorter ones, the median seed is
right in at least 99 % of its samples, of a run's last stage (∀: so many of the
seeds are proved right at every length); published marks at the lengths and with
the exact match that their authors give.

![test length against training length]({figure})

{table}
"""


INDEX = """# Results

Tables and figures of the papers, and what lies beyond them, each made by one
command, with published numbers beside ours. The rows behind every number are in
[rows](rows), with the whole config, the machine, the day and the time;
[all of them](report.html) are a page that sorts and filters. `cpu` is sized for
two cores, `paper` for an accelerator.

{table}

```bash
python launch/tables.py products --plan
python launch/tables.py products
python launch/tables.py --check parity-window_cpi
python launch/tables.py --pages
```

The first line says what is missing of a table here and about how long that
takes, the second makes it (with `--results=DIR` all of it, kept in another
folder), the third makes one row again and compares, the last one makes these
pages of the rows.
{far}"""


def entries(name: str, size: str) -> list[markdown_report.Entry]:
  """Returns the entries of a table's page.

  Args:
    name: of the table.
    size: "cpu" or "paper".
  """
  table, runs = listed.TABLES[name], listed.runs(name, size)
  run_name = lambda row: listed.run(row, table, size).name
  return [
    markdown_report.Entry(
      task=row.task,
      model=row.model,
      run=run_name(row),
      stage=row.stage,
      paper=row.paper,
      expect=row.expect if size == "cpu" else {},
      value=row.value,
      calls=runs[run_name(row)].calls(),
    )
    for row in table.rows
    if size in row.sizes
  ]


def text_of(
  name: str,
  size: str,
  kept_runs: dict[str, tuple[dict, list[dict]]],
  changed: dict[str, str],
  results: pathlib.Path,
) -> str:
  """Returns the Markdown of a table's page, and draws its figures.

  Args:
    name: of the table.
    size: "cpu" or "paper".
    kept_runs: (head, rows) of archived runs, by name.
    changed: differences between a run's archived config and today's, by run.
    results: folder of the pages.
  """
  table, page_entries = listed.TABLES[name], entries(name, size)
  prefix = name if size == "cpu" else f"{name}_paper"
  drawn = figures.draw_table(
    prefix, page_entries, kept_runs, results / "figures", table.along
  )
  drawn = [(text, path.relative_to(results)) for text, path in drawn]
  for text, run, path in table.figures:
    file = pathlib.Path("figures") / run / pathlib.Path(path).name
    if (results / file).exists():
      drawn.append((text, file))
  probe_rows = {}
  for entry in page_entries if table.probes else ():
    rows = kept_runs.get(entry.run, ({}, []))[1]
    rows = [
      row for row in rows if archive.is_probe(row) and row["head"] is None
    ]
    if rows:
      probe_rows[entry.model] = rows
  extras = []
  if probe_rows:
    path = results / "figures" / f"{prefix}_probes.png"
    comparison.figure(probe_rows, path, "what models do inside")
    drawn.insert(0, ("probes against length", path.relative_to(results)))
    extras = [PROBES, tables.to_markdown(comparison.table(probe_rows))]
  flag = "" if size == "cpu" else " --size=paper"
  introduction = (
    f"{table.about}\n\nMade by `python launch/tables.py {name}{flag}`, which"
    " skips runs whose rows are kept here; `--results=DIR` begins anew."
  )
  extras = {"drawn": drawn, "changed": changed, "more": extras}
  extras["source"] = table.source
  return markdown_report.page(
    table.title, introduction, page_entries, kept_runs, **extras
  )


PROBES = """## Inside

Rates in %: median of the seeds (lowest seed), by length."""
