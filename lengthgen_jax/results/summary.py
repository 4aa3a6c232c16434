"""Lines of tables and figures: rows pooled over seeds, and their statistics.

Only seeds are pooled. The rows of a line agree in every condition (those of
`records.Conditions`) and hold each seed once at each length; of a seed that was
evaluated several times the last evaluation counts. The step of a checkpoint is
a condition, so two evaluations of a run that was trained further in between
never share a line. With checkpoint "best" the step differs between seeds, as
`stopped_at` always does, and is no condition.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lengthgen_jax.errors import check
from lengthgen_jax.results.records import CONDITIONS, of_metric, parameters

# What a condition is called in the name of a line, if not by its field's name.
HEADINGS = {
  **dict.fromkeys(("task", "family", "metric", "run"), ""),
  "test_set": "test set",
  "train_length": "trained up to",
  "train_data": "training data",
  "eval_seed": "eval.seed",
  "unit": "in",
  "config_hash": "config",
  "bound": "up to",
}
# Conditions that change with the value of a config field.
BY_CONFIG = "run", "config_hash", "step", "slack", "train_length", "train_data"
GREATER_IS_WORSE = {"edit"}
SHOWN = ("task", "test_set", "width", "run")  # columns beside a line's name
# Stages from the last to the first: the last one that a run has counts.
STAGES = ("certify", "retrain", "train")


class Cell(NamedTuple):
  """Statistics over the seeds of a line at one length.

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


def statistics(rows: Sequence[dict]) -> Cell:
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


class Line(NamedTuple):
  """Rows of one metric under the same conditions, a line of a table or figure.

  Attributes:
    name: the method, and the conditions in which it differs from other lines.
    rows: one row for each seed and length.
    frontier_rows: rows of the same models' frontier.
    proved: `parameters` of the models that are proved right.
  """

  name: str
  rows: list[dict]
  frontier_rows: Sequence[dict] = ()
  proved: frozenset = frozenset()

  @property
  def labels(self) -> dict[str, Any]:
    """Returns what a reader sees beside the numbers."""
    names = (*SHOWN, "unit", "train_length")
    labels = {name: self.rows[0].get(name, "") for name in names}
    return labels | {"method": self.name, "seeds": self.seed_count}

  @property
  def seeds(self) -> list[int]:
    """Returns the seeds in order."""
    return sorted({row["seed"] for row in self.rows})

  @property
  def seed_count(self) -> str:
    """Returns how many seeds there are: "5", or "3 of 5" if two are missing.

    Of several runs it is the run that lacks the most.
    """
    seeds_by_run = {}
    for row in self.rows:
      run = row.get("run"), row["config_hash"], row["seeds_asked"]
      seeds_by_run.setdefault(run, set()).add(row["seed"])
    counts = [(len(seeds), run[-1]) for run, seeds in seeds_by_run.items()]
    evaluated, asked = min(counts, key=lambda count: count[0] - count[1])
    return f"{evaluated} of {asked}" if evaluated < asked else str(evaluated)

  @property
  def is_stress(self) -> bool:
    """Returns whether the test set is one that eval.stress asked for."""
    return any(row.get("stress") for row in self.rows)

  @property
  def proved_seeds(self) -> set[int]:
    """Returns the seeds whose models are proved right at every length."""
    unproved = {
      r["seed"] for r in self.rows if parameters(r) not in self.proved
    }
    return set(self.seeds) - unproved

  @property
  def proof(self) -> str:
    """Returns " ∀" if all seeds are proved right, " ∀ k of R" if some are."""
    count = len(self.proved_seeds)
    share = "" if count == len(self.seeds) else f" {count} of {len(self.seeds)}"
    return f" ∀{share}" if count else ""

  @property
  def cells(self) -> dict[int, Cell]:
    """Returns the statistics by length."""
    return self.cells_by("length")

  @property
  def frontier(self) -> Cell | None:
    """Returns the statistics of the frontier, None if it was not measured."""
    return statistics(self.frontier_rows) if self.frontier_rows else None

  def cells_by(self, field: str) -> dict[Any, Cell]:
    """Returns the statistics by the values of a field."""
    rows_by_value = {}
    for row in self.rows:
      rows_by_value.setdefault(row[field], []).append(row)
    return {x: statistics(rows) for x, rows in sorted(rows_by_value.items())}

  def of_seed(self, seed: int) -> "Line":
    """Returns the line of one seed alone."""
    rows, frontier_rows = (
      [row for row in rows if row["seed"] == seed]
      for rows in (self.rows, self.frontier_rows)
    )
    return self._replace(rows=rows, frontier_rows=frontier_rows)


def lines(
  rows: list[dict], metric: str = "em", shown: Sequence[str] = SHOWN
) -> list[Line]:
  """Returns the lines of a metric, with their frontiers and proofs.

  Args:
    rows: rows of any metrics, in whose order the lines are.
    metric: the metric of the lines.
    shown: as in `pool`.
  """
  # Of frontiers with different bounds the one of the greatest counts.
  frontier_lines = sorted(
    pool(of_metric(rows, "frontier")), key=lambda line: line.rows[0]["bound"]
  )
  frontiers = {_model(line.rows[0]): line.rows for line in frontier_lines}
  models = proved(rows)
  return [
    line._replace(
      frontier_rows=frontiers.get(_model(line.rows[0]), ()), proved=models
    )
    for line in pool(of_metric(rows, metric), shown=shown)
  ]


def sort(unsorted: list[Line]) -> list[Line]:
  """Returns lines sorted by task, method, stage, test set, width and run."""
  names = ("task", "method", "stage", "test_set", "width", "run")
  return sorted(
    unsorted,
    key=lambda line: (
      *(str(line.rows[0].get(name)) for name in names),
      line.rows[0]["step"],
    ),
  )


def final_line(
  rows: list[dict], stage: str = "", test_set: str = ""
) -> Line | None:
  """Returns the line of exact match that stands for a run, None without any.

  Args:
    rows: rows of one run.
    stage: the stage, "" for the last one that has exact match.
    test_set: the test set, "" for the one that comes first.
  """
  exact_rows = [row for row in of_metric(rows, "em") if not row.get("stress")]
  for name in (stage,) if stage else STAGES:
    stage_rows = [row for row in exact_rows if row["stage"] == name]
    if stage_rows:
      test_set = test_set or stage_rows[0]["test_set"]
      test_rows = [row for row in stage_rows if row["test_set"] == test_set]
      others = [r for r in rows if r["metric"] == "certified"]
      return lines(test_rows + others)[0] if test_rows else None
  return None


def single_line(rows: list[dict], what: str) -> Line:
  """Returns rows that all belong to one line as that line.

  Args:
    rows: rows of one metric.
    what: the beginning of the error's message.

  Raises:
    UsageError: they are of different conditions, which the message names.
  """
  pooled = pool(rows)
  names = "; ".join(line.name for line in pooled)
  check(len(pooled) == 1, f"{what}: rows of different conditions: {names}")
  return pooled[0]


def pool(
  rows: list[dict],
  along: Sequence[str] = ("length",),
  free: Sequence[str] = ("bits",),
  shown: Sequence[str] = (),
) -> list[Line]:
  """Groups rows into the lines of a table or a figure, in the order of rows.

  Args:
    rows: rows of one or more runs.
    along: fields that differ along a line: columns, or an axis and panels.
    free: conditions that may differ along it too, because they follow from
      those (such as the run, on an axis of a config field); at one place the
      last row's count.
    shown: fields that a reader sees beside the name. Names of lines differ
      wherever these do not.
  """
  conditions = [name for name in CONDITIONS if name not in (*along, *free)]
  pooled, labels, last_free = {}, {}, {}
  for row in rows:
    condition = _values(row, conditions)
    place = tuple(row[field] for field in along)
    pooled.setdefault(condition, {})[place, row["seed"]] = row
    last_free[condition, place] = _values(row, free)
    labels[condition] = model_name(row), *(row.get(field) for field in shown)
  results = []
  for condition, rows_at in pooled.items():
    name = labels[condition][0]
    namesakes = [x for x in pooled if labels[x] == labels[condition]]
    for i, field in enumerate(conditions):
      if len({other[i] for other in namesakes}) > 1:
        heading = HEADINGS.get(field, field)
        name += f", {heading} {condition[i]}".replace("  ", " ")
        namesakes = [other for other in namesakes if other[i] == condition[i]]
    line_rows = [
      row
      for (place, _), row in rows_at.items()
      if _values(row, free) == last_free[condition, place]
    ]
    results.append(Line(name, line_rows))
  return results


def proved(rows: list[dict]) -> frozenset[tuple]:
  """Returns `parameters` of the models whose last certificate says right."""
  last = {parameters(row): row for row in of_metric(rows, "certified")}
  return frozenset(key for key, row in last.items() if row["value"] == 1)


def model_name(row: dict) -> str:
  """Returns a row's method and what is unusual: "abc (retrain) LEAK"."""
  marks = []
  if row["stage"] != "train":
    marks.append(row["stage"])
  if row["checkpoint"] != "last":
    marks.append(f"checkpoint {row['checkpoint']}")
  if row["eval_seed"]:
    marks.append(f"eval.seed {row['eval_seed']}")
  text = f" ({', '.join(marks)})" if marks else ""
  return row["method"] + text + (" LEAK" if row["leak"] else "")


def joined_values(rows: list[dict], field: str) -> str:
  """Returns the values of a field: "natural", or "fixed or natural"."""
  return " or ".join(sorted({str(row[field]) for row in rows}))


def _model(row: dict) -> tuple:
  """Returns which models on which test set a row is about, for any metric."""
  others = ("metric", "length", "bits", "bound")
  return _values(row, [name for name in CONDITIONS if name not in others])


def _values(row: dict, fields: Sequence[str]) -> tuple:
  """Returns the values of conditions; of a best checkpoint no step."""
  no_condition = ("step",) if row["checkpoint"] == "best" else ()
  return tuple(
    None if field in no_condition else row.get(field) for field in fields
  )
