"""One self-contained HTML page of results, which fetches nothing."""

import base64
import json
import pathlib
from collections.abc import Iterable

from lengthgen_jax.results import summary

TEMPLATE = pathlib.Path(__file__).with_name("page.html")


def page(
  title: str,
  rows: list[dict],
  missing: Iterable[str] = (),
  figures: Iterable[str | pathlib.Path] = (),
) -> str:
  """Returns a page with tables that sort and filter, and curves to hover over.

  Args:
    title: title of the page.
    rows: rows of any runs.
    missing: a line of text for each result that is missing.
    figures: paths of PNGs.

  Returns:
    HTML; the data that it shows is JSON in its element `data`.
  """
  versions = sorted({row["version"] for row in rows})
  data = {
    "title": title,
    "about": f"{len(rows)} rows of lengthgen_jax {', '.join(versions)}.",
    "lines": [
      line_data
      for metric in ("em", "edit")
      for line in summary.sort(summary.lines(rows, metric))
      for line_data in _lines(line, metric)
    ],
    "missing": list(missing),
    "figures": [
      {"name": path.stem, "source": _embedded(path)}
      for path in map(pathlib.Path, figures)
    ],
  }
  # Nothing but `</` could end the script element that holds the JSON.
  text = json.dumps(data, ensure_ascii=False).replace("</", "<\\/")
  return TEMPLATE.read_text().replace("{{data}}", text)


def _lines(line: summary.Line, metric: str) -> list[dict]:
  """Returns the page's data on a line: its median, and each of its seeds.

  Of hard inputs there is the median alone. Cells are lists, whose items
  page.html names.
  """
  members = [("median", line)]
  if not line.is_stress:
    members += [(str(seed), line.of_seed(seed)) for seed in line.seeds]
  labels = {name.replace("_", " "): str(x) for name, x in line.labels.items()}
  labels["trained"] = labels.pop("train length")
  bits = {row["length"]: row["bits"] for row in line.rows}
  return [
    labels
    | {
      "metric": metric,
      "seed": name,
      "seeds": labels["seeds"] if name == "median" else name,
      "count": len(member.seeds),
      "proved": member.proof.strip(),
      "stress": line.is_stress,
      "cells": {
        length: [*_short(cell), bits[length]]
        for length, cell in member.cells.items()
      },
      "frontier": member.frontier and _short(member.frontier),
    }
    for name, member in members
  ]


def _short(cell: summary.Cell) -> list:
  """Returns the fields of a cell, rounded to six decimals."""
  return [round(x, 6) if isinstance(x, float) else x for x in cell]


def _embedded(path: pathlib.Path) -> str:
  """Returns a PNG file as a data URL."""
  text = base64.b64encode(path.read_bytes()).decode()
  return f"data:image/png;base64,{text}"
