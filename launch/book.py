"""Pages of kept rows: one for each table, an index, and all rows as HTML."""

import pathlib

import beyond
import listed
import made
from table import SIZES

from lengthgen_jax.probes import comparison
from lengthgen_jax.results import (
  archive,
  figures,
  formats,
  html_report,
  markdown_report,
  records,
  schema,
)

ALL = "report.html"


def write(results: pathlib.Path, found: dict) -> list[pathlib.Path]:
  """Writes what kept rows say.

  Args:
    results: folder of the pages.
    found: (made, rows) by run.

  Returns:
    Paths of the pages, the index first.
  """
  changed, written, missing = {}, [], []
  index = [["table", "cpu", "paper", "what"]]
  for size in SIZES:
    for name in listed.TABLES:
      for run in listed.runs(name, size).values():
        if run.name in found and run.name not in changed:
          saved = found[run.name][0]["config"]
          changed[run.name] = made.changed(run, saved)
  for name, table in listed.TABLES.items():
    line = [name]
    for size in SIZES:
      runs = listed.runs(name, size)
      done = sum(run in found for run in runs)
      path = results / f"{name}{'' if size == 'cpu' else '_paper'}.md"
      wanted = runs and (done or size == "cpu")
      if wanted:
        text = text_of(name, size, found, changed, results)
        records.write_text(path, text)
        written.append(path)
      of = f"{done} of {len(runs)} runs" if runs else ""
      if done < len(runs):
        missing.append(f"{name} ({size}): {of} have been made")
      line.append(f"[{of}]({path.name})" if wanted else of)
    index.append([*line, table.title])
  rows = [
    row for _, own in found.values() for row in own if not archive.is_probe(row)
  ]
  if schema.of_metric(rows, "em"):
    records.write_text(
      results / ALL, html_report.page("Kept results", rows, missing)
    )
    written.append(results / ALL)
  first = results / "README.md"
  text = INDEX.format(table=formats.markdown(index), far=far(results, found))
  records.write_text(first, text)
  return [first, *written]


def far(results: pathlib.Path, found: dict) -> str:
  """How far ours and others go, as a section with a figure; "" where nothing
  was measured."""
  ours = []
  for run, (task, who) in beyond.REACH.items():
    ours += figures.farthest(task, who, found.get(run, ({}, []))[1])
  if not ours:
    return ""
  units = {mark.task: mark.unit for mark in ours}
  published = [
    figures.Mark(*own, units[own.task])
    for own in beyond.PUBLISHED
    if own.task in units
  ]
  path = results / "figures" / "reach.png"
  figures.figure(ours, published, path, "how far tests go beyond training")
  table = formats.markdown(figures.table(ours, published))
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
  """The rows of a table as its page wants them."""
  table, runs = listed.TABLES[name], listed.runs(name, size)
  made_of = lambda row: listed.run(row, table, size).name
  return [
    markdown_report.Entry(
      task=row.task,
      model=row.model,
      run=made_of(row),
      stage=row.stage,
      paper=row.paper,
      expect=row.expect if size == "cpu" else {},
      value=row.value,
      calls=runs[made_of(row)].calls(),
    )
    for row in table.rows
    if size in row.sizes
  ]


def text_of(name: str, size: str, found: dict, changed: dict, results) -> str:
  """A table's page; draws its figures."""
  table, own = listed.TABLES[name], entries(name, size)
  start = name if size == "cpu" else f"{name}_paper"
  drawn = figures.draw(start, own, found, results / "figures", table.along)
  drawn = [(text, path.relative_to(results)) for text, path in drawn]
  for text, run, path in table.figures:
    file = pathlib.Path("figures") / run / pathlib.Path(path).name
    if (results / file).exists():
      drawn.append((text, file))
  inside = {}
  for entry in own if table.probes else ():
    rows = found.get(entry.run, ({}, []))[1]
    rows = [
      row for row in rows if archive.is_probe(row) and row["head"] is None
    ]
    if rows:
      inside[entry.model] = rows
  more = []
  if inside:
    path = results / "figures" / f"{start}_probes.png"
    comparison.figure(inside, path, "what models do inside")
    drawn.insert(0, ("probes against length", path.relative_to(results)))
    more = [PROBES, formats.markdown(comparison.table(inside))]
  flag = "" if size == "cpu" else " --size=paper"
  about = (
    f"{table.about}\n\nMade by `python launch/tables.py {name}{flag}`, which"
    " skips runs whose rows are kept here; `--results=DIR` begins anew."
  )
  more = {"drawn": drawn, "changed": changed, "more": more}
  more["source"] = table.source
  return markdown_report.page(table.title, about, own, found, **more)


PROBES = """## Inside

Rates in %: median of the seeds (lowest seed), by length."""
