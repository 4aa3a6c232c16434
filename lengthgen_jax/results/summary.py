"""What rows say: lines of numbers, before they are text of any kind.

What certificates say of the rows of a table.
"""

from typing import NamedTuple

import numpy as np

from lengthgen_jax.results import schema

GREATER_IS_WORSE = {"edit"}
SHOWN = ("task", "test_set", "width", "run")  # beside a line's name


class Cell(NamedTuple):
  """The seeds of a line at one place.

  Attributes:
    median, worst, best: of the seeds: shares, or lengths (frontier).
    bound: the worst seed's one-sided 95 % lower bound; None if it has none.
    n: samples of a seed, the least.
    seeds: how many there are.
    limit: of a frontier, how far it was looked for; else None.
  """

  median: float
  worst: float
  best: float
  bound: float | None
  n: int
  seeds: int
  limit: int | None = None


class Line(NamedTuple):
  """What was measured under one set of conditions.

  Attributes:
    group: the rows, of one metric, and their name.
    ahead: rows of the frontier of the same models.
    models: those that are proved right, by schema.PROVED.
  """

  group: schema.Group
  ahead: list
  models: set

  @property
  def about(self) -> dict:
    """What a reader sees beside the numbers."""
    first = self.group.rows[0]
    names = {name: first.get(name, "") for name in (*SHOWN, "unit")}
    own = {"method": self.group.name, "seeds": self.seeds}
    return names | own | {"trained": first["train_length"]}

  @property
  def seeds(self) -> str:
    """How many: "5", or "3 of 5"."""
    return self.group.seeds

  @property
  def numbers(self) -> list[int]:
    """The seeds themselves."""
    return sorted({row["seed"] for row in self.group.rows})

  @property
  def stress(self) -> bool:
    """Whether eval.stress asked for the test set."""
    return any(row.get("stress") for row in self.group.rows)

  @property
  def proved(self) -> str:
    """ " ∀" if certified right for every input, " ∀ k of R" if some are."""
    return schema.for_all(self.group.rows, self.models)

  @property
  def bits(self) -> dict:
    """By length."""
    return {row["length"]: row["bits"] for row in self.group.rows}

  @property
  def cells(self) -> dict:
    """By length."""
    found = {}
    for row in self.group.rows:
      found.setdefault(row["length"], []).append(row)
    return {length: cell(found[length]) for length in sorted(found)}

  @property
  def frontier(self) -> Cell | None:
    """None if it was not measured; of seeds that were looked at up to several
    bounds, those with the greatest."""
    far = max((row["bound"] for row in self.ahead), default=None)
    own = [row for row in self.ahead if row["bound"] == far]
    return cell(own) if own else None

  def of_seed(self, seed: int) -> "Line":
    """One seed alone."""
    own = lambda rows: [row for row in rows if row["seed"] == seed]
    group = self.group._replace(rows=own(self.group.rows))
    return self._replace(group=group, ahead=own(self.ahead))


def lines(rows: list[dict], metric: str = "em", shown=SHOWN) -> list[Line]:
  """A line for each set of conditions, in the order of the rows; `shown` are
  fields that a reader sees beside the name."""
  found = schema.groups(schema.of_metric(rows, metric), shown=shown)
  models, ahead = schema.proved(rows), {}
  for group in schema.groups(schema.of_metric(rows, "frontier")):
    for row in group.rows:
      ahead.setdefault(schema.model(row), []).append(row)
  own = lambda group: ahead.get(schema.model(group.rows[0]), [])
  return [Line(group, own(group), models) for group in found]


def ordered(found: list[Line]) -> list[Line]:
  """By task, method, stage, test set, width and run."""
  names = ("task", "method", "stage", "test_set", "width", "run")

  def key(line):
    first = line.group.rows[0]
    return *(str(first.get(name)) for name in names), first["step"]

  return sorted(found, key=key)


def cell(rows: list[dict]) -> Cell:
  """Of the seeds' rows at one place, one for each seed."""
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
