"""What certificates say of the rows of a table."""

ABOUT = (
  "Of so many seeds; inputs that differ in what the model's rows see, and the"
  " smallest margin among them, from the least to the greatest of the seeds."
  " [What this proves](../certificates.md)."
)


def grid(found: list) -> list[list[str]]:
  """A line for each entry that was certified, right or not.

  Args:
    found: (entry, its run's rows) of each.
  """
  made = [["task", "model", "right", "cases", "smallest margin", "wrong"]]
  for entry, rows in found:
    own = [row for row in rows if row["stage"] == entry.stage]
    # After every round of practice there is another one.
    last = {row["seed"]: row for row in own if row["metric"] == "certified"}
    if last:
      made.append([entry.task, entry.model, *_line(list(last.values()))])
  return made


def _line(rows: list[dict]) -> list[str]:
  right = sum(row["value"] == 1 for row in rows)
  margins = [row["margin"] for row in rows if row["margin"] is not None]
  wrong = [
    f"seed {row['seed']}: {row['reason'].partition(';')[0]}"
    for row in rows
    if row["value"] != 1
  ]
  return [
    f"{right} of {len(rows)}",
    _range([f"{row['n']:,}" for row in sorted(rows, key=lambda r: r["n"])]),
    _range([f"{margin:.2f}" for margin in sorted(margins)]),
    "; ".join(wrong),
  ]


def _range(texts: list[str]) -> str:
  """ "least to greatest" of sorted texts, one of them if they are the same."""
  return " to ".join(dict.fromkeys([*texts[:1], *texts[-1:]]))
