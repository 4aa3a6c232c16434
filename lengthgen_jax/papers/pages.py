"""This module writes the pages of docs/results, archived results beside
published numbers, and the tables of README.md."""

import pathlib
import shlex
from typing import Any

import pandas as pd

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.errors import check
from lengthgen_jax.papers import archive, runs
from lengthgen_jax.papers.archive import Archive
from lengthgen_jax.papers.runs import DATA, SIZES, Row
from lengthgen_jax.probes import row_figures, row_tables
from lengthgen_jax.results import figures, html_report, records, summary, tables

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
"""
REACH = """
## How far

The longest test length at which, as at all shorter ones, the median seed is
right in at least 99 % of its samples, of a run's last stage (∀: so many of the
seeds are proved right at every length by both checkers, ∀¹: by one); published
results stand at the lengths, and with the exact match if any, that their
authors give.

![test length against training length](figures/reach.png)

{reach}
"""
LEGEND = (
  f"Exact match in %: every token of the output and the end token right. Ours:"
  f" {tables.LEGEND}; n samples per seed and length. Frontier: the longest"
  " length with at least 99 % by the lower bound, ≥ where nothing failed as far"
  " as was looked, ∀ where both checkers proved every seed right at every"
  " length (∀¹ beside seeds: one checker alone did). Width: what operands are"
  " padded to, in training and tests."
)
OLD_WIDTHS = (
  "Width *natural in tests*: these rows were made by an older protocol, in"
  " which training pads every operand to the longest one's width, and only"
  " tests have each length's own. At lengths other than the longest trained"
  " one, they mix another width with another length."
)
CERTIFICATES = (
  "Right: for how many of the seeds every case is. Cases: inputs that differ in"
  " what the model's rows see. Smallest margin: of all cases. A range is over"
  " the seeds. Rounding: the largest bound of any case, of the seeds that have"
  " one. Not right: seeds that are wrong, undecided or not tried. [What this"
  " proves](../certificates.md)."
)
# The comments between which README.md has its tables.
START = "<!-- tables: python launch/tables.py --pages -->\n"
END = "<!-- end of tables -->\n"


def write(
  results: pathlib.Path, readme: pathlib.Path | None = None
) -> list[pathlib.Path]:
  """Writes the pages of all archived rows, and the tables of a README; returns
  the paths of all files but figures.

  Args:
    results: the folder of the pages; the archive is its folder "rows".
    readme: the README whose tables are replaced, None for none.

  Raises:
    UsageError: the archive cannot be read, results that belong together are of
      different conditions, or the README lacks the comments for its tables.
  """
  kept = archive.read_archive(results / "rows")
  index, paths, missing = [], [], []
  for name, table in DATA["tables"].items():
    line = {"table": name}
    for size in SIZES:
      names = runs.runs_of(name, size)
      done = sum(run in kept for run in names)
      path = results / f"{name}{'' if size == 'cpu' else '_paper'}.md"
      line[size] = f"{done} of {len(names)} runs" if names else ""
      if done < len(names):
        missing.append(f"{name} ({size}): {line[size]} have been made")
      if names and (done or size == "cpu"):
        records.write_text(path, page(name, size, kept, results))
        paths.append(path)
        line[size] = f"[{line[size]}]({path.name})"
    index.append(line | {"what": table["title"]})
  rows = [
    row
    for run in kept.values()
    for row in run.rows
    if not archive.is_probe(row)
  ]
  if rows:
    paths.append(results / "report.html")
    html = html_report.page("Kept results", rows, missing)
    records.write_text(paths[-1], html)
  text = INDEX.format(table=tables.to_markdown(pd.DataFrame(index)))
  if len(bars := reach(kept)):
    draw_reach(bars, results / "figures" / "reach.png")
    text += REACH.format(reach=tables.to_markdown(bars[bars.columns[:7]]))
  paths.insert(0, results / "README.md")
  records.write_text(paths[0], text)
  if readme:
    text = with_tables(readme.read_text(encoding="utf-8"), kept)
    records.write_text(readme, text)
    paths.append(readme)
  return paths


# A page.


def page(name: str, size: str, kept: Archive, results: pathlib.Path) -> str:
  """Returns the Markdown page of a table, and draws its figures into the folder
  `results`/figures.

  Raises:
    UsageError: the results of a row's test set are of different conditions.
  """
  table, rows = DATA["tables"][name], runs.rows_of(name, size)
  shown = [stage_rows(row, kept) for row in rows]
  cells = cells_of(rows, shown)
  done = {rows[index].run.name for index in set(cells.entry)}
  names = {row.run.name: row.run for row in rows}
  flag = "" if size == "cpu" else " --size=paper"
  parts = [
    f"# {table['title']}",
    tables.to_markdown(main_table(rows, cells, table.get("source", "paper"))),
    " ".join(table["about"].split()),
    LEGEND,
    f"Made by `python launch/tables.py {name}{flag}`, which skips runs whose"
    " rows are kept here; `--results=DIR1 --root=DIR2` begins anew.",
  ]
  old = {row["width"] for group in shown for row in group}
  if archive.NATURAL_IN_TESTS in old:
    parts.insert(3, OLD_WIDTHS)
  if gaps := [f"`{run}`" for run in names if run not in done]:
    parts.append(
      f"{len(gaps)} of {len(names)} runs have not been made yet:"
      f" {', '.join(gaps)}."
    )
  parts += hard_section(cells)
  certificates = tables.certificates(
    [
      (row.task, row.model, group)
      for row, group in zip(rows, shown, strict=True)
    ]
  )
  if len(certificates):
    parts += ["## Certificates", CERTIFICATES, tables.to_markdown(certificates)]
  prefix, folder = name + "_paper" * (size == "paper"), results / "figures"
  drawn = draw(prefix, rows, shown, table, kept, folder)
  models = {
    row.model: [x for x in group if archive.is_probe(x) and x["head"] is None]
    for row, group in zip(rows, shown, strict=True)
  }
  probes = {model: group for model, group in models.items() if group}
  if "probes" in table and probes:
    path = folder / f"{prefix}_probes.png"
    row_figures.draw_comparison(probes, path, "what models do inside")
    drawn.insert(0, ("probes against length", path))
    header, *lines = row_tables.comparison_table(probes)
    parts += [
      "## Inside",
      "Rates in %: median of the seeds (lowest seed), by length.",
      tables.to_markdown(pd.DataFrame(lines, columns=header)),
    ]
  if drawn:
    parts.append("## Figures")
    parts += [f"![{text}]({path.relative_to(results)})" for text, path in drawn]
  parts += command_section(name, names, kept)
  return "\n\n".join(parts) + "\n"


def stage_rows(row: Row, kept: Archive) -> list[dict]:
  """Returns the archived rows that a row of a table shows."""
  run = kept.get(row.run.name)
  return [x for x in run.rows if x["stage"] == row.stage] if run else []


def cells_of(rows: list[Row], shown: list[list[dict]]) -> pd.DataFrame:
  """Returns the cells of a table (`summary.cells`): for each of its rows, whose
  index is `entry`, a curve for each test set.

  Raises:
    UsageError: a test set has rows of different conditions.
  """
  names = [
    {"entry": i, "model": row.model, "row": row.task}
    for i, row in enumerate(rows)
  ]
  cells = summary.cells(
    [x | y for y, group in zip(names, shown, strict=True) for x in group],
    shown=("entry", "test_set", "model", "row"),
  )
  for (entry, test_set), part in cells.groupby(["entry", "test_set"]):
    differing = part["name"].unique()
    check(
      len(differing) == 1,
      f"{rows[entry].run.name}, {rows[entry].stage}, {test_set}: rows of"
      f" different conditions: {'; '.join(differing)}",
    )
  return cells


def main_table(
  rows: list[Row], cells: pd.DataFrame, source: str
) -> pd.DataFrame:
  """Returns the main table: exact match by length, published (by `source`) and
  ours, without the hard test sets (eval.stress)."""
  names = {"entry": "entry", "test_set": "test set", "seeds_proved": "seeds"}
  names |= {"samples": "n", "width": "width"}
  part = tables.with_seeds(cells[~cells.stress.eq(True)])
  ours = tables.wide(part, names, lambda cell: tables.cell_text(cell, ""))
  lengths = {int(x) for x in ours if x.isdigit()}
  lengths |= {n for row in rows for n in row.published}
  measured = {rows[entry].run.name for entry in set(cells.entry)}
  dashes, lines = dict.fromkeys(map(str, lengths), "–"), []
  for entry, row in enumerate(rows):
    line = {"task": row.task, "model": row.model}
    if row.published:
      numbers = {str(n): f"{x}" for n, x in row.published.items()}
      lines.append(line | {"": source} | numbers)
    found = ours[ours.entry == str(entry)].to_dict("records")
    lines += [dashes | x | line | {"": "**ours**"} for x in found]
    if not found:
      # Only models that a certificate finds wrong are finetuned.
      status = "not finetuned" if row.stage == "finetune" else "no rows"
      if row.run.name not in measured:
        status = "not run yet"
      lines.append(dashes | line | {"": "ours", "seeds": status})
  several = ["test set"] * (part.test_set.nunique() > 1)
  columns = ["task", "model", *several, "", *map(str, sorted(lengths))]
  columns += ["frontier", "seeds", "n", "width"]
  return pd.DataFrame(lines).reindex(columns=columns).fillna("")


def hard_section(cells: pd.DataFrame) -> list[str]:
  """Returns the paragraphs on hard test sets, [] if there are none."""
  hard = cells[cells.stress.eq(True) & (cells.length != summary.FRONTIER)]
  if hard.empty:
    return []
  meanings = [
    f"`{name}` {meaning}"
    for name, meaning in DATA["hard"].items()
    if any(test_set.startswith(name) for test_set in set(hard.test_set))
  ]
  names = {"row": "task", "model": "model", "test_set": "test set"}
  table = tables.wide(hard, names, tables.values_text).replace("–", "")
  return [
    "## Hard and odd inputs",
    "Exact match in %, median (worst seed), of fewer than three seeds each:"
    f" {', '.join(meanings)}.",
    f"<details><summary>{len(table)} rows</summary>",
    tables.to_markdown(table),
    "</details>",
  ]


def draw(
  prefix: str,
  rows: list[Row],
  shown: list[list[dict]],
  table: dict,
  kept: Archive,
  folder: pathlib.Path,
) -> list[tuple[str, pathlib.Path]]:
  """Draws the figures of a page; returns (caption, path) of each."""
  figure_rows, field = [], table.get("x", "")
  # A figure has the rows of one task, for which a table may have several names.
  pairs = list(zip(rows, shown, strict=True))
  task_names = {}
  for row, group in pairs:
    for x in group:
      task_names.setdefault(x["task"], set()).add(row.task)
  for row, group in pairs:
    method = row.model
    if any(len(task_names[x["task"]]) > 1 for x in group):
      method = f"{row.task}: {method}"
    # The method says the stage, and may be one curve though its seeds were
    # finetuned in more or fewer rounds.
    labels: dict[str, Any] = {"method": method, "stage": "train"}
    if row.stage == "finetune" and group:
      labels["step"] = max(x["step"] for x in group)
    if field and row.run.name in kept:
      section, _, name = field.partition(".")
      value = kept[row.run.name].header["config"][section][name]
      # data.size=0, where no example repeats, has no place on the axis.
      labels |= {field: value} if value else {}
    figure_rows += [x | labels for x in group]
  paths = figures.draw(figure_rows, folder, f"{prefix}_")
  ending = f", {field.rpartition('.')[2]}="
  by_task = {}
  for x in records.of_metric(figure_rows, "em"):
    if field in x and figures.varied_by(x) == "length":
      x = x | {"method": x["method"].partition(ending)[0]}
      by_task.setdefault(x["task"], []).append(x)
  for task, group in by_task.items():
    path = folder / f"{prefix}_{task}_by_{field}.png"
    paths.append(figures.by_field(group, path, task, field))
  drawn = [(path.stem.replace("_", " "), path) for path in paths]
  for caption, run, path in table.get("figures", ()):
    file = folder / run / pathlib.Path(path).name
    if any(row.run.name == run for row in rows) and file.exists():
      drawn.append((caption, file))
  return drawn


def command_section(
  table: str, names: dict[str, runs.Run], kept: Archive
) -> list[str]:
  """Returns paragraphs with the commands of runs, and a table that says when
  and where the archived ones were made.

  Its last column, without a heading, says how the config of training has
  changed since, or which other run trained the first stage.
  """
  commands = [
    shlex.join(["lengthgen", *arguments])
    for run in names.values()
    for arguments in run.commands(probes=runs.probes_of(table))
  ]
  parts = ["## Commands", "```bash\n" + "\n".join(commands) + "\n```"]
  lines = []
  for run in names.values():
    if run.name in kept:
      header = kept[run.name].header
      remark = runs.config_changes(run, header["config"])
      if header.get("first_stage") and not remark:
        remark = f"first stage of {header['first_stage']}"
      versions = (f"{name} {x}" for name, x in header["versions"].items())
      commit, dash, dirty = header["commit"].partition("-")
      lines.append(
        {
          "run": run.name,
          "seconds": f"{header['seconds'] or '–'}",
          "machine": header["machine"],
          "date": header["date"],
          "commit": commit[:12] + dash + dirty,
          "versions": ", ".join(versions),
          "": remark,
        }
      )
  return [*parts, tables.to_markdown(pd.DataFrame(lines))] if lines else parts


# How far tests go beyond training.


def reach(kept: Archive) -> pd.DataFrame:
  """Returns a table of how far our runs and published ones go, by task.

  A run counts up to the longest length at which, as at all shorter ones, the
  median seed (of two, the worse) has at least 99 %. Beside the columns of text
  are `start`, `end` and `is_ours`.
  """
  lines, units = [], {}
  for task, method, name in DATA["reach"]["ours"]:
    cells, last = summary.final(kept[name].rows if name in kept else []), None
    for cell in cells:
      value = cell.worst if cell.seeds == 2 else cell.median
      if value < 0.99:
        break
      last = cell, value
    if last:
      cell, value = last
      units[task] = cell.unit
      seeds = cell.asked + tables.proof(cell)
      ends = cell.train_length, int(cell.length)
      lines.append(
        (task, f"**{method}**", *ends, 100 * value, seeds, cell.n, True)
      )
  for task, method, start, end, *exact in DATA["reach"]["published"]:
    if task in units:
      value = exact[0] if exact else None
      lines.append((task, method, start, end, value, "", "", False))
  order = list(units)
  lines.sort(key=lambda line: order.index(line[0]))
  text = lambda value: "not said" if value is None else f"{value:.3g} %"
  return pd.DataFrame(
    [
      {
        "task": task,
        "method": method,
        "trained up to": f"{start} {units[task]}",
        "tested at": f"{end}",
        "exact match": text(value),
        "seeds": seeds,
        "n": f"{n}",
        "start": start,
        "end": end,
        "is_ours": is_ours,
      }
      for task, method, start, end, value, seeds, n, is_ours in lines
    ]
  )


def draw_reach(bars: pd.DataFrame, path: pathlib.Path) -> None:
  """Draws the rows of `reach` as bars from training to test length."""
  figure, axis = plt.subplots(
    figsize=(9, 1 + 0.22 * len(bars)), layout="constrained"
  )
  places = -(pd.RangeIndex(len(bars)) + pd.factorize(bars.task)[0])
  for place, bar in zip(places, bars.itertuples(), strict=True):
    color = "C0" if bar.is_ours else "0.6"
    axis.plot([bar.start, bar.end], [place, place], color=color, linewidth=2)
    axis.plot(bar.end, place, "o", color=color, markersize=5)
    proof = bar.seeds[bar.seeds.index("∀") :] if "∀" in bar.seeds else ""
    text = (
      f"{bar.end / bar.start:.3g}×, {bars['exact match'][bar.Index]} {proof}"
    )
    style = {"textcoords": "offset points", "va": "center", "fontsize": 7}
    axis.annotate(text, (bar.end, place), (6, 0), **style)
  labels = bars.task + ": " + bars.method.str.strip("*")
  axis.set_yticks(places, labels, fontsize=7)
  axis.set_xlabel("from the longest in training to the test")
  axis.set(xscale="log", xlim=(None, 8 * bars.end.max()))
  axis.grid(axis="x", color="0.92")
  axis.set_title(
    "how far tests go beyond training (blue: ours; gray: published; ∀: seeds"
    " proved right at every length; ∀¹: by one checker)",
    fontsize=8,
  )
  save(figure, path)


# README.md.


def with_tables(text: str, kept: Archive) -> str:
  """Returns README's text with new tables between the comments START and END.

  Raises:
    UsageError: a comment is missing, or END does not come after START.
  """
  before, start, tail = text.partition(START)
  check(start, f"README.md: has no {START.strip()}")
  _, end, after = tail.partition(END)
  check(end, f"README.md: has no {END.strip()} after {START.strip()}")
  parts = [readme_table(table, kept) for table in DATA["readme"]]
  markdown = "\n\n".join(tables.to_markdown(x) for x in parts if len(x))
  return f"{before}{START}\n{markdown}\n\n{END}{after}"


def readme_table(table: dict, kept: Archive) -> pd.DataFrame:
  """Returns one of README's tables; its last column is the number of seeds that
  both checkers proved right, in parentheses those that one alone did."""
  short = lambda value: tables.percent(value).removesuffix(".0")
  lines = []
  for task, method, run, *stage in table["rows"]:
    rows = kept[run].rows if run in kept else []
    test_set = table.get("test_set", "")
    cells = summary.final(rows, stage[0] if stage else "", test_set)
    if cells:
      texts = {cell.length: tables.values_text(cell, short) for cell in cells}
      both, once = cells[0].both, cells[0].once
      numbers = {
        f"{n:,}".replace(",", " "): texts.get(n, "–") for n in table["lengths"]
      }
      proofs = f"{both or ''}" + (f" ({once})" if once else "")
      line = {table["title"]: task, "method": method, "seeds": cells[0].asked}
      lines.append(line | numbers | {"∀": proofs.strip()})
  return pd.DataFrame(lines)
