"""One self-contained HTML page of results: nothing is fetched."""

import base64
import json
import pathlib

from lengthgen_jax.results import summary

TEMPLATE = pathlib.Path(__file__).with_name("page.html")


def page(title: str, rows: list[dict], missing=(), figures=()) -> str:
  """A page with tables that sort and filter, and curves to hover over.

  Args:
    title: of the page.
    rows: of any runs.
    missing: what is not there, a line each.
    figures: paths of PNGs, whose SVGs are beside them.

  Returns:
    HTML; what it shows is JSON in its element `data`.
  """
  versions = sorted({row["version"] for row in rows})
  data = {
    "title": title,
    "about": f"{len(rows)} rows of lengthgen_jax {', '.join(versions)}.",
    "lines": [
      one
      for metric in ("em", "edit")
      for line in summary.ordered(summary.lines(rows, metric))
      for one in _lines(line, metric)
    ],
    "missing": list(missing),
    "figures": [
      {
        "name": path.stem,
        "source": _embedded(path.with_name(path.stem + ".svg")),
      }
      for path in map(pathlib.Path, figures)
    ],
  }
  # In a script element only `</` could end it.
  text = json.dumps(data, ensure_ascii=False).replace("</", "<\\/")
  return TEMPLATE.read_text().replace("{{data}}", text)


def _lines(line: summary.Line, metric: str) -> list[dict]:
  """The median of a line's seeds, and each seed; of hard inputs the former
  alone. Cells are lists, as page.html names them."""
  own = [("median", line)]
  if not line.stress:
    own += [(str(seed), line.of_seed(seed)) for seed in line.numbers]
  about = {name.replace("_", " "): str(x) for name, x in line.about.items()}
  return [
    about
    | {
      "metric": metric,
      "seed": name,
      "seeds": about["seeds"] if name == "median" else name,
      "count": len(one.numbers),
      "proved": one.proved.strip(),
      "stress": line.stress,
      "cells": {
        length: [*_short(cell), one.bits[length]]
        for length, cell in one.cells.items()
      },
      "frontier": one.frontier and _short(one.frontier),
    }
    for name, one in own
  ]


def _short(cell: summary.Cell) -> list:
  """A cell's fields, as many digits as a reader could ask for."""
  return [round(x, 6) if isinstance(x, float) else x for x in cell]


def _embedded(path: pathlib.Path) -> str:
  """A figure as part of a page."""
  text = base64.b64encode(path.read_bytes()).decode()
  return f"data:image/svg+xml;base64,{text}"
