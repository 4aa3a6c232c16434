"""Tables of what probes measured, of one run or of several models."""

import pandas as pd

from lengthgen_jax.probes.registry import PROBES


def select_rows(rows: list[dict], metric: str, **values) -> list[dict]:
  values["metric"] = metric
  return [row for row in rows if values.items() <= row.items()]


def location_name(row: dict) -> str:
  """Returns the name of a row's layer and part: "layer 0 before MLP"."""
  layer = "" if row["layer"] is None else f"layer {row['layer']} "
  if row["line"] and not layer:
    layer = "all layers "
  return layer + (row["part"] or "").replace("_", " ").replace("mlp", "MLP")


def titled(models: dict[str, list[dict]]) -> pd.DataFrame:
  """Returns the rows of models by name as a frame, in the order of PROBES and
  without those of single positions, with the columns `model` and `title`.

  A title says what is measured and where, like "EM without a line, layer 0
  cross, a: right-1·row = 0, one head".
  """
  table = []
  for metric, probe in PROBES.items():
    for model, rows in models.items():
      for row in select_rows(rows, metric, position=None):
        head = "" if row["head"] is None else "one head"
        parts = probe.title, location_name(row), row["line"], head
        names = {"model": model, "title": ", ".join(filter(None, parts))}
        table.append({"correct": None} | row | names)
  return pd.DataFrame(table)


def comparison_table(models: dict[str, list[dict]]) -> pd.DataFrame:
  """Returns a table with a line for each title and model.

  A cell is the median of seeds and heads, with the lowest value in parentheses
  where it differs; rates of right answers are in %.
  """
  table, lines = titled(models), []
  for title, of_title in table.groupby("title", sort=False):
    for model, part in of_title.groupby("model", sort=False):
      cells = {f"{n}": _cell(x) for n, x in part.groupby("length")}
      lines.append({"probe": title, "model": model} | cells)
  lengths = map(str, sorted(table.length.unique()))
  columns = ["probe", "model", *lengths]
  return pd.DataFrame(lines, columns=columns).fillna("")


def _cell(rows: pd.DataFrame) -> str:
  is_rate = rows.correct.notna().all()
  median, lowest = (
    f"{100 * x:.1f}" if is_rate else f"{x:.2f}"
    for x in (rows.value.median(), rows.value.min())
  )
  return median if median == lowest else f"{median} ({lowest})"


def summary(rows: list[dict]) -> str:
  """Returns the table of the rows of one stage as text."""
  if not rows:
    return "the probes found nothing to measure in these samples"
  table = comparison_table({"": rows}).drop(columns="model").set_index("probe")
  heading = "median (lowest) of seeds or heads; EM and rates in %"
  return table.rename_axis(index=None, columns=heading).to_string()
