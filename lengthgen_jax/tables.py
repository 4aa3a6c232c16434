"""Result rows as text: one run on the screen, many runs in Markdown."""

import numpy as np

# Conditions that one table row holds together; lengths are its columns.
GROUP = (
  "task",
  "method",
  "stage",
  "test_set",
  "width",
  "train_length",
  "train_data",
  "checkpoint",
  "leak",
)


def of_run(rows: list[dict]) -> str:
  """Exact match by length: a line per method, test set and seed."""
  exact = [row for row in rows if row["metric"] == "em"]
  lengths = sorted({row["length"] for row in exact})
  groups = {}
  for row in exact:
    name = (row["method"], row["stage"], row["test_set"])
    groups.setdefault(name, {}).setdefault(row["seed"], {})[row["length"]] = row
  first = exact[0]
  unit = unit_of(first)
  head = [str(n) for n in lengths]
  if first["bits"] is not None:
    bits = {row["length"]: row["bits"] for row in exact}
    head = [f"{n} ({bits[n]})" for n in lengths]
  lines = [
    f"{first['task']}: exact match in % by length in {unit}; in brackets the"
    " one-sided 95 % lower bound",
    f"trained on lengths up to {first['train_length']},"
    f" width={first['width']}, strict (every output token counted)",
    _columns(["method", "test set", "seed"], head),
  ]
  for (method, stage, test_set), seeds in groups.items():
    name = method if stage == "train" else f"{method}/{stage}"
    for seed, found in sorted(seeds.items()):
      cells = [_exact(found.get(n)) for n in lengths]
      lines.append(_columns([name, test_set, str(seed)], cells))
    if len(seeds) > 1:
      medians = []
      for n in lengths:
        values = [s[n]["value"] for s in seeds.values() if n in s]
        medians.append(f"{100 * np.median(values):.1f}" if values else "-")
      lines.append(_columns([name, test_set, "median"], medians))
  return "\n".join(lines)


def unit_of(row: dict) -> str:
  """What a row's lengths count."""
  if row["task"] == "sort":
    return "items"
  return "digits" if row["bits"] is None else "decimal digits (bits)"


def _exact(row) -> str:
  if row is None:
    return "-"
  return f"{100 * row['value']:.1f} [{100 * row['lower_bound']:.1f}]"


def _columns(names: list[str], cells: list[str]) -> str:
  widths = (26, 14, 6)
  left = " ".join(n.ljust(w) for n, w in zip(names, widths, strict=True))
  return left + " ".join(cell.rjust(13) for cell in cells)


def of_runs(rows: list[dict]) -> str:
  """Markdown: the median of seeds and, below 100 %, the worst seed.

  A cell also holds the worst seed's one-sided 95 % lower bound in brackets.
  Runs of different configs never share a row.
  """
  lengths = sorted({row["length"] for row in rows})
  groups = {}
  for row in rows:
    key = tuple(row[name] for name in GROUP) + (row["run"],)
    groups.setdefault(key, []).append(row)
  head = ["task", "method", "test set", "width", "run", "seeds"]
  lines = [_line(head + [str(n) for n in lengths])]
  lines.append(_line(["---"] * (len(head) + len(lengths))))
  for key, members in sorted(groups.items(), key=lambda item: str(item[0])):
    group = dict(zip(GROUP, key, strict=False))
    stage = "" if group["stage"] == "train" else f" ({group['stage']})"
    seeds = len({row["seed"] for row in members})
    cells = [
      group["task"],
      group["method"] + stage + (" LEAK" if group["leak"] else ""),
      group["test_set"],
      group["width"],
      key[-1],
      str(seeds),
    ]
    for n in lengths:
      cells.append(_cell([row for row in members if row["length"] == n]))
    lines.append(_line(cells))
  return "\n".join(lines)


def _cell(rows: list[dict]) -> str:
  if not rows:
    return "–"
  median = 100 * np.median([row["value"] for row in rows])
  worst = min(rows, key=lambda row: row["value"])
  text = f"{median:.1f}"
  if len(rows) > 1 and worst["value"] < 0.9995 * median / 100:
    text += f" (worst {100 * worst['value']:.1f})"
  return f"{text} [{100 * worst['lower_bound']:.1f}]"


def _line(cells: list[str]) -> str:
  return "| " + " | ".join(cells) + " |"
