"""Exact match as text: one run on the screen, many runs in Markdown."""

import numpy as np

from lengthgen_jax.results.schema import (
  Group,
  for_all,
  groups,
  of_metric,
  proved,
  values,
)


def of_run(rows: list[dict]) -> str:
  """Exact match by length: a line per method, test set and seed, and the
  median of the seeds, which says "k of R seeds" where R were asked for. ∀
  stands beside a seed that is certified right at every length."""
  exact, models = of_metric(rows, "em"), proved(rows)
  if not exact:
    return "no exact match was measured"
  bits = {row["length"]: row["bits"] for row in exact}
  lengths = sorted(bits)
  unit, head = values(exact, "unit"), list(map(str, lengths))
  if any(bits.values()):
    unit, head = f"{unit} (bits)", [f"{n} ({bits[n]})" for n in lengths]
  lines = [["method", "test set", "seed", *head]]
  for group in groups(exact, shown=("test_set",)):
    names = [group.name, group.rows[0]["test_set"]]
    for seed in sorted({row["seed"] for row in group.rows}):
      mine = [row for row in group.rows if row["seed"] == seed]
      cells = [
        _median(own) + "".join(map(_bound, own))
        for own in _split(mine, lengths)
      ]
      lines.append([*names, str(seed) + for_all(mine, models), *cells])
    if group.seeds != "1":
      of = f", {group.seeds} seeds" if " of " in group.seeds else ""
      cells = map(_median, _split(group.rows, lengths))
      of += for_all(group.rows, models)
      lines.append([*names, "median" + of, *cells])
  return "\n".join(
    [
      f"{values(exact, 'task')}: exact match in % by length in {unit}; in"
      " brackets the one-sided 95 % lower bound",
      f"{_trained(exact)}, width={values(exact, 'width')}, strict (every output"
      " token counted)" + ("; ∀: proved for every input" if models else ""),
      *_aligned(lines),
    ]
  )


def _trained(rows: list[dict]) -> str:
  if all(row["step"] == 0 for row in rows):
    return "not trained"
  return f"trained on lengths up to {values(rows, 'train_length')}"


def _split(rows: list[dict], lengths) -> list[list[dict]]:
  """The rows of each length."""
  return [[row for row in rows if row["length"] == n] for n in lengths]


def _median(rows: list[dict]) -> str:
  """Of the seeds, a row each; "-" if there is none."""
  seeds = [row["value"] for row in rows]
  return f"{100 * np.median(seeds):.1f}" if rows else "-"


def _bound(row: dict) -> str:
  bound = row["lower_bound"]
  return "" if bound is None else f" [{100 * bound:.1f}]"


def _aligned(lines: list[list[str]]) -> list[str]:
  """Lines of cells: three names on the left, numbers on the right."""
  columns = list(zip(*lines, strict=True))
  for i, least in enumerate((26, 14, 6)):
    width = max(least, *map(len, columns[i]))
    columns[i] = [name.ljust(width) for name in columns[i]]
  columns[3:] = [[cell.rjust(13) for cell in own] for own in columns[3:]]
  return list(map(" ".join, zip(*columns, strict=True)))


# What a line of many runs says before its numbers.
NAMES = ("task", "method", "test_set", "width", "run", "seeds")


def of_runs(rows: list[dict]) -> str:
  """Markdown: the median of seeds and, below 100 %, the worst seed.

  A cell also holds the worst seed's one-sided 95 % lower bound in brackets,
  and the number of its seeds where it is not that of the line. Rows of
  different conditions or runs never share a line; rows may name their `run`.
  ∀ says how many of the seeds are certified right at every length.
  """
  exact, models = of_metric(rows, "em"), proved(rows)
  lengths = sorted({row["length"] for row in exact})
  head = [name.replace("_", " ") for name in NAMES]
  lines = [[*head, *map(str, lengths)], ["---"] * (len(head) + len(lengths))]
  shown = ("task", "test_set", "width", "run")
  for group in sorted(groups(exact, shown=shown), key=_order):
    seeds = group.seeds + for_all(group.rows, models)
    about = group.rows[0] | {"method": group.name, "seeds": seeds}
    names = [str(about.get(name, "")) for name in NAMES]
    seeds = len({row["seed"] for row in group.rows})
    cells = [_cell(own, seeds) for own in _split(group.rows, lengths)]
    lines.append(names + cells)
  return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _order(group: Group) -> tuple:
  names = ("task", "method", "stage", "test_set", "width", "run")
  return *(str(group.rows[0].get(n)) for n in names), group.rows[0]["step"]


def _cell(rows: list[dict], seeds: int) -> str:
  """Of one line at one length; `seeds` are the line's."""
  if not rows:
    return "–"
  text = _median(rows)
  median = np.median([row["value"] for row in rows])
  worst = min(rows, key=lambda row: row["value"])
  if len(rows) > 1 and worst["value"] < 0.9995 * median:
    text += f" (worst {100 * worst['value']:.1f})"
  text += _bound(worst)
  return text if len(rows) == seeds else f"{text} of {len(rows)}"
