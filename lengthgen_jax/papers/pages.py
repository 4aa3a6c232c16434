"""Writes the pages of docs/results, archived results beside published numbers,
and the tables of README.md."""

import collections
import pathlib
import shlex
from collections.abc import Iterable

import jinja2
import pandas as pd

from lengthgen_jax.drawing import panels, save
from lengthgen_jax.papers import archive, runs
from lengthgen_jax.papers.archive import Archive
from lengthgen_jax.papers.runs import DATA, SIZES, Row
from lengthgen_jax.probes.figures import draw_comparison
from lengthgen_jax.probes.tables import comparison_table
from lengthgen_jax.results import figures, html_report, records, summary, tables

TEMPLATES = jinja2.Environment(
  loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
  trim_blocks=True,
  keep_trailing_newline=True,
)
TEMPLATES.filters["markdown"] = tables.to_markdown
# The comments between which README.md has its tables.
START = "<!-- tables: python launch/tables.py --pages -->\n"
END = "<!-- end of tables -->\n"


def write(
  results: pathlib.Path, readme: pathlib.Path | None = None
) -> list[pathlib.Path]:
  """Writes the pages of all archived rows into the folder `results`, whose
  folder "rows" is the archive, and the tables of a README, if one is named;
  returns the paths of all files but figures."""
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
  if len(bars := extrapolation(kept)):
    draw_extrapolation(bars, results / "figures" / "extrapolation.png")
  text = TEMPLATES.get_template("index.md").render(
    index=pd.DataFrame(index), extrapolation=bars[bars.columns[:7]]
  )
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
  `results`/figures."""
  table, rows = DATA["tables"][name], runs.rows_of(name, size)
  shown = labeled_rows(rows, kept)
  cells = cells_of(shown)
  names = {row.run.name: row.run for row in rows}
  hard = cells[cells.stress.eq(True) & (cells.length != summary.FRONTIER)]
  columns = {"label": "task", "model": "model", "test_set": "test set"}
  prefix, folder = name + "_paper" * (size == "paper"), results / "figures"
  figure_paths = draw(prefix, shown, table, names, folder)
  models = {}
  for row in filter(archive.is_probe, shown):
    if row["head"] is None and "probes" in table:
      models.setdefault(row["model"], []).append(row)
  if models:
    path = folder / f"{prefix}_probes.png"
    draw_comparison(models, path, "what models do inside")
    figure_paths.insert(0, ("probes against length", path))
  return TEMPLATES.get_template("page.md").render(
    name=name,
    size=size,
    table=table | {"about": " ".join(table["about"].split())},
    legend=tables.LEGEND,
    main=main_table(rows, kept, table),
    num_runs=len(names),
    missing=[run for run in names if run not in kept],
    meanings=[
      f"`{begin}` {meaning}"
      for begin, meaning in DATA["hard"].items()
      if hard.test_set.str.startswith(begin).any()
    ],
    hard=tables.wide(hard, columns, tables.values_text).replace("–", ""),
    certificates=certificates(shown),
    probes=comparison_table(models) if models else (),
    figures=[(text, path.relative_to(results)) for text, path in figure_paths],
    commands=[
      shlex.join(["lengthgen", *arguments])
      for run in names.values()
      for arguments in run.commands()
    ],
    made=made(names, kept),
  )


def labeled_rows(rows: list[Row], kept: Archive) -> list[dict]:
  """Returns the archived rows that the rows of a table show, each with the
  index of its table row as `entry`, and with what the table calls its task and
  its model as `label` and `model`."""
  return [
    archived | {"entry": entry, "label": row.task, "model": row.model}
    for entry, row in enumerate(rows)
    if row.run.name in kept
    for archived in kept[row.run.name].rows
    if archived["stage"] == row.stage
  ]


def cells_of(labeled: list[dict]) -> pd.DataFrame:
  """Returns the cells of `labeled_rows`, a curve for each table row and test
  set."""
  return summary.cells(labeled, shown=("entry", "test_set", "label", "model"))


def main_table(rows: list[Row], kept: Archive, table: dict) -> pd.DataFrame:
  """Returns the main table: exact match by length, published and ours, without
  the hard test sets (eval.stress); and at the same lengths our rows of the same
  task and model in the tables that `table` names as `beside`, as "small"."""
  ours = measured(rows, kept)
  beside = {  # by task, model and stage
    row[:3]: row
    for name in table.get("beside", ())
    for row in runs.rows_of(name, "cpu")
  }
  small = measured([beside[row[:3]] for row in rows if beside], kept)
  lengths = {int(x) for x in ours if x.isdigit()}
  lengths |= {n for row in rows for n in row.published}
  dashes, lines = dict.fromkeys(map(str, lengths), "–"), []
  for entry, row in enumerate(rows):
    line = {"task": row.task, "model": row.model}
    if row.published:
      numbers = {str(n): f"{x}" for n, x in row.published.items()}
      lines.append(line | {"": table.get("source", "paper")} | numbers)
    for title, curves in (("**ours**", ours), ("small", small)):
      of_entry = curves[curves.entry == str(entry)].to_dict("records")
      lines += [dashes | curve | line | {"": title} for curve in of_entry]
    # Only models that a certificate finds wrong are finetuned.
    if str(entry) not in set(ours.entry) and row.stage != "finetune":
      status = "no rows" if row.run.name in kept else "not run yet"
      lines.append(dashes | line | {"": "ours", "seeds": status})
  several = ["test set"] * (ours["test set"].nunique() > 1)
  columns = ["task", "model", *several, "", *map(str, sorted(lengths))]
  columns += ["frontier", "seeds", "n", "width"]
  return pd.DataFrame(lines).reindex(columns=columns).fillna("")


def measured(rows: list[Row], kept: Archive) -> pd.DataFrame:
  """Returns a frame of text with a row for each curve of the main table, with
  the index of its table row as `entry`."""
  names = {"entry": "entry", "test_set": "test set", "seeds_proved": "seeds"}
  names |= {"samples": "n", "width": "width"}
  cells = cells_of(labeled_rows(rows, kept))
  part = tables.with_seeds(cells[~cells.stress.eq(True)])
  return tables.wide(part, names)


def certificates(shown: list[dict]) -> pd.DataFrame:
  """Returns a table of what certificates say, of `labeled_rows`.

  "rounding" is the largest bound of the seeds that have one; the last column
  has the seeds that are not proved right.
  """
  fields = ["entry", "label", "model", "seed", "value", "n", "margin"]
  fields += ["rounding", "reason"]
  rows = [row for row in shown if row["metric"] == "certified"]
  table, lines = pd.DataFrame(rows, columns=fields, dtype=object), []
  # Every round of finetuning ends with a certificate: the last one counts.
  table = table.drop_duplicates(["entry", "seed"], keep="last")

  def extent(values: pd.Series, form: str) -> str:
    texts = [form.format(value) for value in sorted(values.dropna())]
    return " to ".join(dict.fromkeys([*texts[:1], *texts[-1:]]))

  for _, part in table.groupby("entry"):
    first, bounds = part.iloc[0], part.rounding.dropna()
    failed = part[part.value != 1]
    wrong = [
      f"seed {row.seed}: {row.reason.partition(';')[0]}"
      for row in failed.itertuples()
    ]
    lines.append(
      {
        "task": first.label,
        "model": first.model,
        "right": f"{len(part) - len(failed)} of {len(part)}",
        "contexts": extent(part.n, "{:,}"),
        "smallest margin": extent(part.margin, "{:.2f}"),
        "rounding": "–" if bounds.empty else f"{bounds.max():.2g}",
        "not right": "; ".join(wrong),
      }
    )
  return pd.DataFrame(lines)


def draw(
  prefix: str,
  shown: list[dict],
  table: dict,
  names: Iterable[str],
  folder: pathlib.Path,
) -> list[tuple[str, pathlib.Path]]:
  """Draws the figures of a page; returns (caption, path) of each, and of those
  that its runs drew."""
  # A figure has the rows of one task, for which a table may have several names.
  pairs = {(row["task"], row["label"]) for row in shown}
  num_labels = collections.Counter(task for task, _ in pairs)
  figure_rows, by_task = [], {}
  for row in shown:
    label = f"{row['label']}: " * (num_labels[row["task"]] > 1) + row["model"]
    labels = {"method": label, "stage": "train"}
    # The label says the stage; a finetuned curve has seeds of several steps.
    labels |= {"step": 0} if row["stage"] == "finetune" else {}
    figure_rows.append(row | labels)
  paths = figures.draw(figure_rows, folder, f"{prefix}_")
  field = table.get("x", "")
  for row in records.of_metric(figure_rows, "em"):
    model, has_value, value = row["model"].partition(
      f", {field.rpartition('.')[2]}="
    )
    # data.size=0, where no example repeats, has no place on the axis.
    if has_value and value != "0" and figures.varied_by(row) == "length":
      row = row | {"method": model, field: int(value)}
      by_task.setdefault(row["task"], []).append(row)
  for task, group in by_task.items():
    path = folder / f"{prefix}_{task}_by_{field}.png"
    paths.append(figures.curves(group, path, task, field, field))
  drawn = [(path.stem.replace("_", " "), path) for path in paths]
  for caption, run, path in table.get("figures", ()):
    file = folder / run / pathlib.Path(path).name
    if run in names and file.exists():
      drawn.append((caption, file))
  return drawn


def made(names: dict[str, runs.Run], kept: Archive) -> pd.DataFrame:
  """Returns a table that says when and where archived runs were made, and how
  the config of training has changed since."""
  lines = []
  for run in names.values():
    if run.name in kept:
      header = kept[run.name].header
      remark = runs.config_changes(run, header["config"])
      versions = (f"{name} {x}" for name, x in header["versions"].items())
      commit, dash, dirty = header["commit"].partition("-")
      line = {x: header[x] for x in ("run", "seconds", "machine", "date")}
      line["seconds"] = f"{header['seconds'] or '–'}"
      line["commit"] = commit[:12] + dash + dirty
      line |= {"versions": ", ".join(versions), "changed since": remark}
      lines.append(line)
  return pd.DataFrame(lines)


# How far tests go beyond training.


def extrapolation(kept: Archive) -> pd.DataFrame:
  """Returns a table of how far our runs and published ones go, by task.

  A run counts up to the longest length at which, as at all shorter ones, the
  median seed (of two, the worse) has at least 99 %. Beside the columns of text
  are `start`, `end` and `is_ours`.
  """
  lines, units = [], {}
  for task, method, name in DATA["extrapolation"]["ours"]:
    line = {}
    for cell in summary.final(kept[name].rows if name in kept else []):
      value = cell.worst if cell.seeds == 2 else cell.median
      if value < 0.99:
        break
      units[task] = cell.unit
      line = {
        "start": cell.train_length,
        "end": int(cell.length),
        "exact match": f"{100 * value:.3g} %",
        "seeds": cell.asked + tables.proof(cell),
        "n": f"{cell.n}",
      }
    if line:
      label = {"task": task, "method": f"**{method}**", "is_ours": True}
      lines.append(label | line)
  for task, method, start, end, *exact in DATA["extrapolation"]["published"]:
    line = {"task": task, "method": method, "start": start, "end": end}
    line["exact match"] = f"{exact[0]:.3g} %" if exact else "not said"
    line |= {"seeds": "", "n": "", "is_ours": False}
    lines += [line] if task in units else []
  for line in lines:
    line["trained up to"] = f"{line['start']} {units[line['task']]}"
    line["tested at"] = f"{line['end']}"
  lines.sort(key=lambda line: [*units].index(line["task"]))
  columns = ["task", "method", "trained up to", "tested at", "exact match"]
  columns += ["seeds", "n", "start", "end", "is_ours"]
  return pd.DataFrame(lines, columns=columns)


def draw_extrapolation(bars: pd.DataFrame, path: pathlib.Path) -> None:
  """Draws the rows of `extrapolation` as bars from training to test length."""
  figure, (axis,) = panels(1, 8, 0.22 * len(bars))
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
    " proved right at every length)",
    fontsize=8,
  )
  save(figure, path)


# README.md.


def short_texts(cells: list) -> dict[float, str]:
  """Returns what cells show as text, by length, without last digits of 0."""
  short = lambda fraction: tables.percent(fraction).removesuffix(".0")
  return {cell.length: tables.values_text(cell, short) for cell in cells}


def with_tables(text: str, kept: Archive) -> str:
  """Returns README's text with new tables between START and END."""
  before, tail = text.split(START)
  _, after = tail.split(END)
  parts = [readme_table(table, kept) for table in DATA["readme"]]
  markdown = "\n\n".join(tables.to_markdown(x) for x in parts if len(x))
  return f"{before}{START}\n{markdown}\n\n{END}{after}"


def readme_table(table: dict, kept: Archive) -> pd.DataFrame:
  """Returns one of README's tables; its last column is the number of seeds that
  are proved right, "" where no proof was tried."""
  lines = []
  for task, method, run, *stage in table["rows"]:
    rows = kept[run].rows if run in kept else []
    cells = summary.final(rows, *stage, test_set=table.get("test_set", ""))
    if cells:
      texts = short_texts(cells)
      numbers = {
        f"{n:,}".replace(",", " "): texts.get(n, "–") for n in table["lengths"]
      }
      line = {table["title"]: task, "method": method, "seeds": cells[0].asked}
      is_tried = any(row["metric"] == "certified" for row in rows) and not stage
      proved = str(cells[0].proved or 0) if is_tried else ""
      lines.append(line | numbers | {"∀": proved})
  return pd.DataFrame(lines)
