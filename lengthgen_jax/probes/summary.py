"""What probes found, in words."""

import numpy as np

from lengthgen_jax.probes.ablation_charts import of_metric, where
from lengthgen_jax.probes.registry import PROBES


def summary(rows: list[dict], seed: int) -> list[str]:
  """A few lines: rates against length, what matters, how strong lines are.

  Args:
    rows: of all seeds of a stage.
    seed: whose heads are told of.
  """
  found = [*_rates(rows)]
  own = [row for row in rows if row["seed"] == seed]
  intact = of_metric(own, "intact")
  if intact:
    (row,) = intact
    found.append(
      f"seed {seed}, EM at {row['length']} {row['unit']}:"
      f" {100 * row['value']:.1f} % of {row['n']}"
    )
    found += _worst(own, "without_head", row["value"])
  found += _lines(rows)
  found += _strongest(own)
  return found


def _rates(rows: list[dict]):
  """A table of rates, where they are no head's."""
  names = [
    name
    for name, probe in PROBES.items()
    if probe.by_length and any(r["head"] is None for r in of_metric(rows, name))
  ]
  own = [row for row in rows if row["metric"] in names]
  lengths = sorted({row["length"] for row in own})
  if lengths:
    head = "".join(f"{n:>7}" for n in lengths)
    yield f"{'rates in %, median of seeds':<58}{head}"
  for name in names:
    mine = of_metric(own, name)
    for place in dict.fromkeys(map(where, mine)):
      cells = ""
      for n in lengths:
        values = [
          r["value"] for r in mine if where(r) == place and r["length"] == n
        ]
        cells += f"{100 * np.median(values):7.1f}" if values else f"{'-':>7}"
      yield f"{PROBES[name].title + ', ' + place:<58}{cells}"


def _worst(rows: list[dict], metric: str, intact: float):
  """What costs the most, the worst five."""
  own = [row for row in of_metric(rows, metric) if row["value"] < intact]
  own.sort(key=lambda row: row["value"])
  total = len(of_metric(rows, metric))
  if not total:
    return
  what = metric.replace("_", " ")
  yield f"{what}: {len(own)} of {total} lower it" + (", most:" if own else "")
  for row in own[:5]:
    yield f"  {100 * row['value']:5.1f} % without {_name(row)}"


def _name(row: dict) -> str:
  return f"{where(row)} head {row['head']}"


def _lines(rows: list[dict]):
  """A table of what is lost without a line anywhere, and how many lines are
  enough, by seed."""
  closed = of_metric(rows, "without_line")
  seeds = sorted({row["seed"] for row in closed})
  everywhere = of_metric(closed, "without_line", layer=None, head=None)
  if everywhere:
    head = "".join(f"{seed:>7}" for seed in seeds)
    yield f"{'EM in % without a line anywhere, by seed':<58}{head}"
  kinds = dict.fromkeys((row["part"], row["line"]) for row in everywhere)
  for part, line in kinds:
    at = {
      row["seed"]: f"{100 * row['value']:7.1f}"
      for row in of_metric(everywhere, "without_line", part=part, line=line)
    }
    cells = "".join(at.get(seed, f"{'-':>7}") for seed in seeds)
    for row in of_metric(rows, "retrained_without_line", part=part, line=line):
      again = f"{100 * row['value']:.1f}"
      cells += f"; seed {row['seed']} trained without it: {again}"
    yield f"{f'  {part}, {line}':<58}{cells}"
  enough = of_metric(rows, "enough_lines")
  if closed and enough:
    count = lambda of, seed: sum(
      row["seed"] == seed and row["head"] is not None for row in of
    )
    cells = "".join(
      f"{count(enough, seed)}/{count(closed, seed)}".rjust(7) for seed in seeds
    )
    yield f"{'lines that are enough together':<58}{cells}"


def _strongest(rows: list[dict]):
  """The strongest line of each site and layer."""
  own = of_metric(rows, "strongest_line")
  for place in dict.fromkeys(map(where, own)):
    mine = [row for row in own if where(row) == place]
    top = max(mine, key=lambda row: row["value"])
    values = ", ".join(f"{row['value']:.1f}" for row in mine)
    yield f"z of the strongest lines, {place}: {values}; {top['line']}"
