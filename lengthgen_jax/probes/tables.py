"""Groups rows of probes, and makes tables of them, of one run or of several
models."""

import numpy as np

from lengthgen_jax.probes.registry import PROBES

# Titles of the metrics whose rows come from --mode=probe; see registry.PROBES.
RETRAINED = {"retrained_without_line": "EM of a model trained without a line"}


def select_rows(rows: list[dict], metric: str, **values) -> list[dict]:
  values["metric"] = metric
  return [row for row in rows if values.items() <= row.items()]


def location_name(row: dict) -> str:
  """Returns the name of a row's layer and part: "layer 0 before MLP"."""
  layer = "" if row["layer"] is None else f"layer {row['layer']} "
  if row["line"] and not layer:
    layer = "all layers "
  return layer + (row["part"] or "").replace("_", " ").replace("mlp", "MLP")


def group_by_location(
  rows: list[dict], *fields: str
) -> dict[tuple, list[dict]]:
  """Groups rows by (location name, *values of the fields)."""
  groups = {}
  for row in rows:
    key = location_name(row), *(row[field] for field in fields)
    groups.setdefault(key, []).append(row)
  return groups


def values_by_length(rows: list[dict]) -> dict[int, list[float]]:
  """Returns {length: values of all rows}, from the shortest length on."""
  values = {}
  for row in sorted(rows, key=lambda row: row["length"]):
    values.setdefault(row["length"], []).append(row["value"])
  return values


def by_title(rows: list[dict]) -> dict[str, list[dict]]:
  """Groups rows by what they measure and where, like "EM without a line, layer
  0 cross, a: right-1·row = 0, one head", in the order of PROBES; rows of single
  positions are left out."""
  groups = {}
  titles = {name: probe.title for name, probe in PROBES.items()} | RETRAINED
  for metric, title in titles.items():
    for row in select_rows(rows, metric, position=None):
      head = "" if row["head"] is None else "one head"
      parts = title, location_name(row), row["line"], head
      groups.setdefault(", ".join(filter(None, parts)), []).append(row)
  return groups


def comparison_table(models: dict[str, list[dict]]) -> list[list[str]]:
  """Returns a table: a header row, and a row for each title and model.

  A cell is the median of seeds and heads, with the lowest value in parentheses
  where it differs; rates of right answers are in %.
  """
  all_rows = [row for rows in models.values() for row in rows]
  lengths = sorted({row["length"] for row in all_rows})
  lines = [["probe", "model", *map(str, lengths)]]
  rows_by_model = {model: by_title(rows) for model, rows in models.items()}
  for title in by_title(all_rows):
    for model, groups in rows_by_model.items():
      if rows := groups.get(title):
        percent = None if rows[0].get("correct") is None else 100
        values = values_by_length(rows)
        cells = [_cell(values.get(length, []), percent) for length in lengths]
        lines.append([title, model, *cells])
  return lines


def _cell(values: list[float], percent: int | None) -> str:
  if not values:
    return ""
  median, lowest = (
    f"{percent * x:.1f}" if percent else f"{x:.2f}"
    for x in (np.median(values), min(values))
  )
  return median if median == lowest else f"{median} ({lowest})"


def summary(rows: list[dict]) -> list[str]:
  """Returns lines of text: the table of the rows of one stage."""
  head, *lines = [[x[0], *x[2:]] for x in comparison_table({"": rows})]
  head[0] = "median (lowest) of seeds or heads; EM and rates in %"
  columns = list(zip(head, *lines, strict=True))
  widths = [max(map(len, column)) for column in columns]
  return [
    "  ".join([x[0].ljust(widths[0]), *map(str.rjust, x[1:], widths[1:])])
    for x in (head, *lines)
  ]
