"""Results of many workdirs as one table and figures."""

import pathlib

import numpy as np

from lengthgen_jax import records
from lengthgen_jax.errors import check
from lengthgen_jax.interpret import plots

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


def run(root: pathlib.Path) -> str:
  """Writes `root`/report.md and figures from all results.jsonl below it.

  Returns:
    The table, in Markdown.

  Raises:
    UsageError: there are no results.
  """
  files = sorted(root.rglob("results.jsonl"))
  rows = [
    row | {"run": str(file.parent.relative_to(root))}
    for file in files
    for row in records.read(file)
    if row["metric"] == "em"
  ]
  check(rows, f"--workdir={root}: no results.jsonl with rows below it")
  text = table(rows)
  records.write_text(root / "report.md", text + "\n")
  for task in sorted({row["task"] for row in rows}):
    for width in sorted({row["width"] for row in rows}):
      mine = [r for r in rows if (r["task"], r["width"]) == (task, width)]
      if mine:
        plots.accuracy_by_length(
          mine,
          root / "figures" / f"{task}_{width}.png",
          f"{task}, width={width}",
        )
  return text


def table(rows: list[dict]) -> str:
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
