"""This module makes text tables of what probes measured, of one run or of
several models."""

from collections.abc import Iterator

import numpy as np

from lengthgen_jax.probes.registry import PROBES

# Rows.


def select_rows(rows: list[dict], metric: str, **values) -> list[dict]:
  """Returns the rows of a metric whose fields have the given values."""
  values["metric"] = metric
  return [row for row in rows if values.items() <= row.items()]


def location_name(row: dict) -> str:
  """Returns the name of a row's layer and part: "layer 0 before MLP"."""
  layer = "" if row["layer"] is None else f"layer {row['layer']} "
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


def panel_titles(rows: list[dict]) -> dict[tuple[str, str], str]:
  """Returns {(location, metric): title} of what rows measure, in the order of
  PROBES: each is a panel of a figure, or a row of a table."""
  order = list(PROBES)
  pairs = sorted(
    group_by_location(rows, "metric"), key=lambda pair: order.index(pair[1])
  )
  return {
    (location, metric): PROBES[metric].title + (location and f", {location}")
    for location, metric in pairs
  }


# Text.


def comparison_table(models: dict[str, list[dict]]) -> list[list[str]]:
  """Returns a table: a header row, and a row for each panel and model.

  A cell is the median of seeds in %, with the lowest seed in parentheses where
  it differs.

  Args:
    models: the probe rows of each model by its name, without those of single
      heads; all values are rates.
  """
  all_rows = [row for rows in models.values() for row in rows]
  lengths = sorted({row["length"] for row in all_rows})
  table = [["probe", "model", *map(str, lengths)]]
  for panel, title in panel_titles(all_rows).items():
    for model, rows in models.items():
      values = values_by_length(
        group_by_location(rows, "metric").get(panel, [])
      )
      if values:
        cells = [_cell(values.get(length, [])) for length in lengths]
        table.append([title, model, *cells])
  return table


def _cell(values: list[float]) -> str:
  """Returns the text of a cell, "" if it has no values."""
  if not values:
    return ""
  percent = 100 * np.array(values)
  median, lowest = f"{np.median(percent):.1f}", f"{percent.min():.1f}"
  return median if median == lowest else f"{median} ({lowest})"


def summary(rows: list[dict], seed: int) -> list[str]:
  """Returns lines of text about the probes of one stage: rates by length, exact
  match without single heads or lines, and the strongest lines.

  Args:
    rows: the rows of all probes and seeds of the stage.
    seed: the seed whose heads the text is about.
  """
  seed_rows = [row for row in rows if row["seed"] == seed]
  return [
    *_rates(rows),
    *_knocked_out_heads(seed_rows),
    *_closed_lines(rows),
    *_strongest_lines(seed_rows),
  ]


def _table_row(label: str, cells: dict, columns: list) -> str:
  """Returns a line of text with the cell of each column, "-" without one."""
  texts = (cells.get(column, "-") for column in columns)
  return f"{label:<58}" + "".join(f"{text:>7}" for text in texts)


def _percent(values: float | list[float]) -> str:
  """Returns the median of fractions in percent."""
  return f"{100 * np.median(values):.1f}"


def _rates(rows: list[dict]) -> Iterator[str]:
  """Yields a table of rates by length, without those of single heads."""
  rows = [
    row
    for row in rows
    if row["head"] is None and row["metric"] in PROBES
    if PROBES[row["metric"]].by_length
  ]
  lengths = sorted({row["length"] for row in rows})
  if lengths:
    heading = dict(zip(lengths, lengths, strict=True))
    yield _table_row("rates in %, median of seeds", heading, lengths)
  for panel, title in panel_titles(rows).items():
    values = values_by_length(group_by_location(rows, "metric")[panel])
    cells = {length: _percent(x) for length, x in values.items()}
    yield _table_row(title, cells, lengths)


def _knocked_out_heads(rows: list[dict]) -> Iterator[str]:
  """Yields exact match, the number of heads without which it is lower, and up
  to five of these, those without which it is lowest."""
  for intact in select_rows(rows, "intact"):
    yield (
      f"seed {intact['seed']}, EM at {intact['length']} {intact['unit']}:"
      f" {_percent(intact['value'])} % of {intact['n']}"
    )
    heads = select_rows(rows, "without_head")
    harmful = [row for row in heads if row["value"] < intact["value"]]
    if heads:
      ending = ", most:" if harmful else ""
      yield f"without head: {len(harmful)} of {len(heads)} lower it{ending}"
    for row in sorted(harmful, key=lambda row: row["value"])[:5]:
      part = f"{location_name(row)} head {row['head']}"
      yield f"  {_percent(row['value']):>5} % without {part}"


def _closed_lines(rows: list[dict]) -> Iterator[str]:
  """Yields a table of exact match with a line closed in all heads, by seed.

  A row ends with the exact match of models trained again without the line. The
  last row has the number of lines that suffice together, of all lines.
  """
  closed = select_rows(rows, "without_line")
  everywhere = select_rows(closed, "without_line", layer=None, head=None)
  seeds = sorted({row["seed"] for row in closed})
  if everywhere:
    heading = dict(zip(seeds, seeds, strict=True))
    yield _table_row("EM in % without a line anywhere, by seed", heading, seeds)
  for (part, line), line_rows in group_by_location(everywhere, "line").items():
    cells = {row["seed"]: _percent(row["value"]) for row in line_rows}
    yield _table_row(f"  {part}, {line}", cells, seeds) + "".join(
      f"; seed {row['seed']} trained without it: {_percent(row['value'])}"
      for row in select_rows(
        rows, "retrained_without_line", part=part, line=line
      )
    )
  enough = select_rows(rows, "enough_lines")
  if closed and enough:
    count = lambda rows, seed: sum(row["seed"] == seed for row in rows)
    single = [row for row in closed if row["head"] is not None]
    cells = {x: f"{count(enough, x)}/{count(single, x)}" for x in seeds}
    yield _table_row("lines that are enough together", cells, seeds)


def _strongest_lines(rows: list[dict]) -> Iterator[str]:
  """Yields, for each layer and site, the score of each head's strongest line
  and the best of these lines."""
  for (location,), heads in group_by_location(
    select_rows(rows, "strongest_line")
  ).items():
    best = max(heads, key=lambda row: row["value"])
    values = ", ".join(f"{row['value']:.1f}" for row in heads)
    yield f"scores of strongest lines, {location}: {values}; {best['line']}"
