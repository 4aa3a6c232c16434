"""This module makes a self-contained HTML page of results.

Each task has a table that a reader can sort and filter, and a figure; below
them opens with a click: other test sets, edit distances, further figures.
"""

import base64
import itertools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jinja2
import pandas as pd

from lengthgen_jax.results import summary, tables
from lengthgen_jax.results.summary import FRONTIER, joined

TEMPLATE = pathlib.Path(__file__).with_name("page.html")


class Cell(NamedTuple):
  """A cell of an HTML table: its text, a second line in small print, what is
  shown where the pointer rests, and the number by which it sorts."""

  text: str
  small: str = ""
  title: str = ""
  sort: float | None = None


def page(
  title: str,
  rows: list[dict],
  missing: Iterable[str] = (),
  figures: Iterable[pathlib.Path] = (),
  fields: dict[str, list[str]] | None = None,
) -> str:
  """Returns an HTML page.

  Args:
    title: its title.
    rows: rows of any runs.
    missing: a line of text for each missing result.
    figures: PNGs to embed, whose names begin with the task; of each task the
      first one stands below the main table.
    fields: {task: further columns of its rows}, like config fields that were
      varied.
  """
  fields, tasks = fields or {}, sorted({row["task"] for row in rows})
  # The longest name first: "multiply_long" is no figure of "multiply".
  images = {task: [] for task in sorted(tasks, key=len, reverse=True)}
  for path in figures:
    task = next(x for x in images if path.name.startswith(f"{x}_"))
    data = base64.b64encode(path.read_bytes()).decode()
    images[task].append({"name": path.stem, "data": data})
  sections = []
  for task in tasks:
    task_rows = [row for row in rows if row["task"] == task]
    names = fields.get(task, [])
    part, edits = (
      tables.in_order(
        summary.cells(task_rows, metric, shown=("test_set", *names))
      )
      for metric in ("em", "edit")
    )
    curves = part.drop_duplicates("curve")
    tested = curves.test_set[~curves.stress.eq(True)]
    # The main test set is the one of most curves, without those of eval.stress.
    main_set = tested.value_counts(sort=True).index[0] if len(tested) else None
    is_main = ~part.stress.eq(True) & (part.test_set == main_set)
    others = {
      "Other and hard inputs": part[~is_main],
      "Edit distance, % of the output": edits,
    }
    sections.append(
      {
        "task": task,
        "about": f"Exact match in % by length in {joined(part.unit)}, test set"
        f" {main_set}",
        "main": _table(part[is_main], main_set, names),
        "others": {
          name: _table(cells, main_set, names)
          for name, cells in others.items()
          if not cells.empty
        },
        "images": images[task],
      }
    )
  versions = ", ".join(sorted({row["version"] for row in rows}))
  environment = jinja2.Environment(autoescape=True)
  template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
  return template.render(
    title=title,
    about=f"{len(rows):,} rows of lengthgen_jax {versions}.",
    sections=sections,
    missing=list(missing),
  )


def _table(
  cells: pd.DataFrame, main_set: str | None, fields: Sequence[str]
) -> list[list[Cell]]:
  """Returns the cells of a table, the header first: a row for each curve, with
  a column of test sets unless all are the main one."""
  if cells.empty:
    return []
  has_test_sets = bool((cells.test_set != main_set).any())
  others = {"test_set": "test set"} if has_test_sets else {}
  others |= {field: field for field in fields}
  lengths = sorted(set(cells.length))
  bits = dict(zip(cells.length, cells.bits, strict=True))
  header = [Cell("method"), *map(Cell, others.values())]
  for n in lengths:
    small = f"{bits[n]} bits" if bits[n] else ""
    name = "frontier" if n == FRONTIER else f"{n:.0f}"
    header.append(Cell(name, "" if n == FRONTIER else small))
  texts = cells[list(others)].to_dict()
  rows = [[*header, Cell("seeds"), Cell("run")]]
  for _, curve in itertools.groupby(cells.itertuples(), lambda x: x.curve):
    by_length = {cell.length: cell for cell in curve}
    first = next(iter(by_length.values()))
    method, _, differences = first.name.partition(" ")
    row = [Cell(method.strip(","), differences)]
    row += [Cell(str(texts[name][first.Index])) for name in others]
    row += [_cell(by_length.get(n), first, n) for n in lengths]
    row += [Cell(first.asked + tables.proof(first)), Cell(str(first.run))]
    rows.append(row)
  return rows


def _cell(cell: Any, first: Any, length: float) -> Cell:
  """Returns the cell of a curve, whose `first` cell is given, at a length."""
  if length == FRONTIER:
    if first.both == first.in_curve:
      return Cell("∀")
    return Cell(tables.cell_text(cell, "") if cell else "–")
  if cell is None:
    return Cell("–")
  values = tables.values_text(cell, worst="")
  text = values if cell.seeds < 3 else values.partition(" ")[0]
  rest = tables.cell_text(cell, "").removeprefix(text).strip()
  shares = " ".join(map(tables.percent, cell.values))
  sort = cell.worst if cell.seeds == 2 else None
  return Cell(text, rest, f"{shares}; n={cell.n}", sort)
