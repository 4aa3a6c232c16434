"""Results of many workdirs as one table and figures."""

import pathlib

from lengthgen_jax import records, tables
from lengthgen_jax.errors import check
from lengthgen_jax.interpret import plots


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
  text = tables.of_runs(rows)
  records.write_text(root / "report.md", text + "\n")
  repeats = [row for row in rows if row["test_set"].startswith("repeats_")]
  if repeats:
    plots.accuracy_by_repetition(
      _told_apart(repeats),
      root / "figures" / "repetition.png",
      "exact match by repetition",
    )
  rows = [row for row in rows if row not in repeats]
  for task in sorted({row["task"] for row in rows}):
    for width in sorted({row["width"] for row in rows}):
      mine = [r for r in rows if (r["task"], r["width"]) == (task, width)]
      if mine:
        plots.accuracy_by_length(
          _told_apart(mine),
          root / "figures" / f"{task}_{width}.png",
          f"{task}, width={width}",
        )
  return text


def _told_apart(rows: list[dict]) -> list[dict]:
  """Rows whose method names the run too, where several runs share a method."""
  runs = {}
  for row in rows:
    runs.setdefault(row["method"], set()).add(row["run"])
  return [
    row | {"method": f"{row['method']}: {row['run']}"}
    if len(runs[row["method"]]) > 1
    else row
    for row in rows
  ]
