"""Summaries of result rows: statistics over seeds, as numbers.

`lines` turns rows into the lines of a table or a figure, with a cell per
length. `grid` is the table of what certificates say.
"""

from typing import NamedTuple

import numpy as np

from lengthgen_jax.results import schema

GREATER_IS_WORSE = {"edit"}
SHOWN = ("task", "test_set", "width", "run")  # fields shown beside the name


class Cell(NamedTuple):
  """Statistics over the seeds of a line at one place.

  Attributes:
    median, worst, best: of the seeds; shares, or lengths (of a frontier).
    bound: the worst seed's one-sided 95 % lower bound; None if it has none.
    n: the least number of samples of a seed.
    seeds: how many seeds there are.
    limit: of a frontier, the length up to which it was looked for; else None.
  """

  median: float
  worst: float
  best: float
  bound: float | None
  n: int
  seeds: int
  limit: int | None = None


class Line(NamedTuple):
  """The measurements of one metric under one set of conditions.

  Attributes:
    group: the rows and their name.
    ahead: rows of the frontier of the same models.
    models: the models that are proved right, by schema.PROVED.
  """

  group: schema.Group
  ahead: list
  models: set

  @property
  def about(self) -> dict:
    """Returns the texts that a reader sees beside the numbers."""
    first_row = self.group.rows[0]
    names = {name: first_row.get(name, "") for name in (*SHOWN, "unit")}
    fields = {"method": self.group.name, "seeds": self.seeds}
    return names | fields | {"trained": first_row["train_length"]}

  @property
  def seeds(self) -> str:
    """Returns how many seeds there are: "5", or "3 of 5"."""
    return self.group.seeds

  @property
  def numbers(self) -> list[int]:
    """Returns the seeds themselves, in order."""
    return sorted({row["seed"] for row in self.group.rows})

  @property
  def stress(self) -> bool:
    """Returns whether the test set is one that eval.stress asked for."""
    return any(row.get("stress") for row in self.group.rows)

  @property
  def proved(self) -> str:
    """Returns " ∀" if all seeds are proved right, " ∀ k of R" if some are."""
    return schema.proof_mark(self.group.rows, self.models)

  @property
  def bits(self) -> dict[int, int | None]:
    """Returns the bits of the operands by length."""
    return {row["length"]: row["bits"] for row in self.group.rows}

  @property
  def cells(self) -> dict[int, Cell]:
    """Returns the cells by length."""
    rows_by_length = {}
    for row in self.group.rows:
      rows_by_length.setdefault(row["length"], []).append(row)
    return {
      length: cell(rows_by_length[length]) for length in sorted(rows_by_length)
    }

  @property
  def frontier(self) -> Cell | None:
    """Returns the frontier over the seeds, None if it was not measured.

    Where it was looked for up to several bounds, the greatest one counts.
    """
    bound = max((row["bound"] for row in self.ahead), default=None)
    rows = [row for row in self.ahead if row["bound"] == bound]
    return cell(rows) if rows else None

  def of_seed(self, seed: int) -> "Line":
    """Returns the line of one seed alone."""
    of_this_seed = lambda rows: [row for row in rows if row["seed"] == seed]
    group = self.group._replace(rows=of_this_seed(self.group.rows))
    return self._replace(group=group, ahead=of_this_seed(self.ahead))


def lines(
  rows: list[dict], metric: str = "em", shown: tuple[str, ...] = SHOWN
) -> list[Line]:
  """Returns a line for each set of conditions, in the order of the rows.

  Args:
    rows: rows of any metrics; certificates and frontiers are used too.
    metric: the metric of the lines.
    shown: fields that a reader sees beside the name of a line.
  """
  groups = schema.groups(schema.of_metric(rows, metric), shown=shown)
  models, frontiers = schema.proved(rows), {}
  for group in schema.groups(schema.of_metric(rows, "frontier")):
    for row in group.rows:
      frontiers.setdefault(schema.model(row), []).append(row)
  frontier_rows = lambda group: frontiers.get(schema.model(group.rows[0]), [])
  return [Line(group, frontier_rows(group), models) for group in groups]


def ordered(unordered: list[Line]) -> list[Line]:
  """Returns lines sorted by task, method, stage, test set, width and run."""
  names = ("task", "method", "stage", "test_set", "width", "run")

  def key(line: Line) -> tuple:
    """Returns the sort key of a line."""
    first_row = line.group.rows[0]
    return *(str(first_row.get(name)) for name in names), first_row["step"]

  return sorted(unordered, key=key)


def cell(rows: list[dict]) -> Cell:
  """Returns the statistics of rows at one place, one row for each seed."""
  values = [row["value"] for row in rows]
  low, high = min, max
  if rows[0]["metric"] in GREATER_IS_WORSE:
    low, high = max, min
  worst = low(rows, key=lambda row: row["value"])
  return Cell(
    median=float(np.median(values)),
    worst=worst["value"],
    best=high(values),
    bound=worst["lower_bound"],
    n=min(row["n"] for row in rows),
    seeds=len({row["seed"] for row in rows}),
    limit=rows[0].get("bound"),
  )


ABOUT = (
  "Of so many seeds; inputs that differ in what the model's rows see, and the"
  " smallest margin among them, from the least to the greatest of the seeds."
  " [What this proves](../certificates.md)."
)


def grid(entry_rows: list[tuple]) -> list[list[str]]:
  """Returns a head and lines of cells: what certificates say of each entry.

  Entries that were not certified are left out.

  Args:
    entry_rows: (markdown_report.Entry, rows of its run) of each entry.
  """
  table = [["task", "model", "right", "cases", "smallest margin", "wrong"]]
  for entry, rows in entry_rows:
    stage_rows = [row for row in rows if row["stage"] == entry.stage]
    # Every round of practice ends with a certificate: the last one counts.
    certificates = {
      row["seed"]: row for row in stage_rows if row["metric"] == "certified"
    }
    if certificates:
      table.append(
        [entry.task, entry.model, *_line(list(certificates.values()))]
      )
  return table


def _line(rows: list[dict]) -> list[str]:
  """Returns the cells of certificates, one row for each seed."""
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
  """Returns "least to greatest" of sorted texts, or one if they are equal."""
  return " to ".join(dict.fromkeys([*texts[:1], *texts[-1:]]))
