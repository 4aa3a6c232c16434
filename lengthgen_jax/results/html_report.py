"""A self-contained HTML page of results.

Each task has a table that a reader can sort and filter, and a figure; below
them opens with a click: other test sets, edit distances, further figures.
"""

import base64
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import jinja2
import pandas as pd

from lengthgen_jax.results import tables
from lengthgen_jax.results.summary import joined

TEMPLATE = pathlib.Path(__file__).with_name("page.html")


def page(
  title: str,
  rows: list[dict],
  missing: Iterable[str] = (),
  figures: Iterable[pathlib.Path] = (),
  fields: dict[str, list[str]] | None = None,
) -> str:
  """Returns the HTML page of rows of any runs, and of texts for missing ones.

  `figures` are PNGs, whose names begin with the task; the first of a task
  stands below its main table. `fields` are further columns by task, like config
  fields that were varied.
  """
  tasks, sections = sorted({row["task"] for row in rows}), []
  # The longest name first: "multiply_long" is no figure of "multiply".
  images = {task: [] for task in sorted(tasks, key=len, reverse=True)}
  for path in figures:
    task = next(x for x in images if path.name.startswith(f"{x}_"))
    data = base64.b64encode(path.read_bytes()).decode()
    images[task].append({"name": path.stem, "data": data})
  for task in tasks:
    names = (fields or {}).get(task, [])
    exact, edits = (
      tables.cells_of_task(rows, task, metric, names)
      for metric in ("em", "edit")
    )
    tested = exact[~exact.stress.eq(True)].drop_duplicates("curve").test_set
    # The main test set is the one of most curves, without those of eval.stress.
    main_set = tested.value_counts().index[0] if len(tested) else None
    is_main = ~exact.stress.eq(True) & (exact.test_set == main_set)
    parts = {
      f"Exact match in % by length in {joined(exact.unit)}, test set"
      f" {main_set}": exact[is_main],
      "Other and hard inputs": exact[~is_main],
      "Edit distance, % of the output": edits,
    }
    parts = {
      text: _table(cells, names) for text, cells in parts.items() if len(cells)
    }
    sections.append({"task": task, "tables": parts, "images": images[task]})
  text = TEMPLATE.read_text(encoding="utf-8")
  return jinja2.Template(text, autoescape=True).render(
    title=title,
    num_rows=f"{len(rows):,}",
    versions=", ".join(sorted({row["version"] for row in rows})),
    sections=sections,
    missing=list(missing),
  )


def _table(cells: pd.DataFrame, fields: Sequence[str]) -> dict[str, Any]:
  """Returns the headings of a table, its texts, and what is shown where the
  pointer rests: the single seeds and their samples."""
  seeds = lambda cell: (
    f"{' '.join(map(tables.percent, cell.values))}; n={cell.n}"
  )
  shown = tables.named(cells, fields)
  titles = tables.named(cells, fields, seeds)
  titles = titles.where(shown != "–", "")
  titles.loc[:, [not name.isdigit() for name in shown]] = ""
  return {
    "headings": list(shown),
    "rows": [
      list(zip(*pair, strict=True))
      for pair in zip(shown.to_numpy(), titles.to_numpy(), strict=True)
    ],
  }
