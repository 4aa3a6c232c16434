"""Summaries of what probes measured, as lines of text."""

from collections.abc import Iterator

import numpy as np

from lengthgen_jax.probes.ablation_charts import of_metric, where
from lengthgen_jax.probes.registry import PROBES


def summary(rows: list[dict], seed: int) -> list[str]:
  """Returns lines of text: rates by length, what matters, how strong lines are.

  Args:
    rows: of all probes and seeds of a stage.
    seed: whose heads the text is about.
  """
  text_lines = [*_rates(rows)]
  seed_rows = [row for row in rows if row["seed"] == seed]
  intact = of_metric(seed_rows, "intact")
  if intact:
    (row,) = intact
    text_lines.append(
      f"seed {seed}, EM at {row['length']} {row['unit']}:"
      f" {100 * row['value']:.1f} % of {row['n']}"
    )
    text_lines += _worst(seed_rows, "without_head", row["value"])
  text_lines += _lines(rows)
  text_lines += _strongest(seed_rows)
  return text_lines


def _rates(rows: list[dict]) -> Iterator[str]:
  """Yields a table of the rates that are of no single head, by length."""
  names = [
    name
    for name, probe in PROBES.items()
    if probe.by_length
    and any(record["head"] is None for record in of_metric(rows, name))
  ]
  rate_rows = [row for row in rows if row["metric"] in names]
  lengths = sorted({row["length"] for row in rate_rows})
  if lengths:
    head = "".join(f"{length:>7}" for length in lengths)
    yield f"{'rates in %, median of seeds':<58}{head}"
  for name in names:
    metric_rows = of_metric(rate_rows, name)
    for place in dict.fromkeys(map(where, metric_rows)):
      cells = ""
      for length in lengths:
        values = [
          record["value"]
          for record in metric_rows
          if where(record) == place and record["length"] == length
        ]
        cells += f"{100 * np.median(values):7.1f}" if values else f"{'-':>7}"
      yield f"{PROBES[name].title + ', ' + place:<58}{cells}"


def _worst(rows: list[dict], metric: str, intact: float) -> Iterator[str]:
  """Yields how many interventions lower exact match, and the five worst.

  Args:
    rows: of one seed.
    metric: the intervention's.
    intact: exact match with nothing changed.
  """
  harmful = [row for row in of_metric(rows, metric) if row["value"] < intact]
  harmful.sort(key=lambda row: row["value"])
  total = len(of_metric(rows, metric))
  if not total:
    return
  label = metric.replace("_", " ")
  yield f"{label}: {len(harmful)} of {total} lower it" + (
    ", most:" if harmful else ""
  )
  for row in harmful[:5]:
    yield f"  {100 * row['value']:5.1f} % without {_name(row)}"


def _name(row: dict) -> str:
  """Returns the words for the head that a row is of."""
  return f"{where(row)} head {row['head']}"


def _lines(rows: list[dict]) -> Iterator[str]:
  """Yields a table of exact match without a line anywhere, by seed.

  Its last line is how many lines are enough together.
  """
  closed = of_metric(rows, "without_line")
  seeds = sorted({row["seed"] for row in closed})
  everywhere = of_metric(closed, "without_line", layer=None, head=None)
  if everywhere:
    head = "".join(f"{seed:>7}" for seed in seeds)
    yield f"{'EM in % without a line anywhere, by seed':<58}{head}"
  kinds = dict.fromkeys((row["part"], row["line"]) for row in everywhere)
  for part, line in kinds:
    cells_by_seed = {
      row["seed"]: f"{100 * row['value']:7.1f}"
      for row in of_metric(everywhere, "without_line", part=part, line=line)
    }
    cells = "".join(cells_by_seed.get(seed, f"{'-':>7}") for seed in seeds)
    for row in of_metric(rows, "retrained_without_line", part=part, line=line):
      again = f"{100 * row['value']:.1f}"
      cells += f"; seed {row['seed']} trained without it: {again}"
    yield f"{f'  {part}, {line}':<58}{cells}"
  enough = of_metric(rows, "enough_lines")
  if closed and enough:
    count = lambda counted, seed: sum(
      row["seed"] == seed and row["head"] is not None for row in counted
    )
    cells = "".join(
      f"{count(enough, seed)}/{count(closed, seed)}".rjust(7) for seed in seeds
    )
    yield f"{'lines that are enough together':<58}{cells}"


def _strongest(rows: list[dict]) -> Iterator[str]:
  """Yields the strongest line of each site and layer, and its z-score."""
  strongest = of_metric(rows, "strongest_line")
  for place in dict.fromkeys(map(where, strongest)):
    place_rows = [row for row in strongest if where(row) == place]
    top = max(place_rows, key=lambda row: row["value"])
    values = ", ".join(f"{row['value']:.1f}" for row in place_rows)
    yield f"z of the strongest lines, {place}: {values}; {top['line']}"
