"""This module pools result rows over seeds into curves, with statistics at each
length.

A curve is drawn in a figure, or fills a row of a table. But for the length, its
rows agree in all conditions (the fields of `records.Conditions`), and they have
each seed once at each length; if a seed was evaluated several times, the last
evaluation counts. The step of a checkpoint is a condition: if a run is
evaluated, trained further and evaluated again, the two evaluations are
different curves. The step is not a condition where it differs between seeds:
for checkpoint "best", and after finetuning, which some seeds do not need.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lengthgen_jax.errors import check
from lengthgen_jax.results.records import (
  CONDITIONS,
  checkers,
  of_metric,
  parameters,
)

# What a condition is called in the name of a curve, if not by its field; ""
# where its value speaks for itself.
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
BY_CONFIG = (
  *("run", "config_hash", "step", "slack", "train_length", "train_data"),
  *("normalizer", "segments"),
)
GREATER_IS_WORSE = {"edit"}  # metrics
SHOWN = ("task", "test_set", "width", "run")  # columns beside a curve's name
# Stages from the last to the first: a run's last one stands for it. The stage
# "interpolate" never does.
STAGES_LAST_FIRST = ("finetune", "retrain", "train")


class Cell(NamedTuple):
  """A Cell has statistics over the seeds of a curve at one length.

  Attributes:
    median, worst, best: of the metric's values: fractions of 1, or lengths for
      the metric "frontier".
    lower_bound: the worst seed's one-sided 95 % bound; None if it has none.
    n: the smallest number of samples of a seed.
    seeds: the number of seeds.
    limit: for "frontier", the longest length that the search may try; else
      None.
  """

  median: float
  worst: float
  best: float
  lower_bound: float | None
  n: int
  seeds: int
  limit: int | None = None


def statistics(rows: Sequence[dict]) -> Cell:
  """Returns the statistics of one cell, given one row for each seed."""
  values = [row["value"] for row in rows]
  low, high = min, max
  if rows[0]["metric"] in GREATER_IS_WORSE:
    low, high = max, min
  worst = low(rows, key=lambda row: row["value"])
  return Cell(
    median=float(np.median(values)),
    worst=worst["value"],
    best=high(values),
    lower_bound=worst["lower_bound"],
    n=min(row["n"] for row in rows),
    seeds=len({row["seed"] for row in rows}),
    limit=rows[0].get("bound"),
  )


class Curve(NamedTuple):
  """A Curve has result rows of one metric, usually against length, under equal
  conditions.

  Attributes:
    name: the method, and the conditions in which it differs from other curves.
    rows: one for each seed and length.
    frontier_rows: rows of the frontier of the same models.
    proved: `records.parameters` of all models that both checkers
      (`records.CHECKERS`) proved right, also models of other curves.
    proved_once: the same of those that one checker alone proved right.
  """

  name: str
  rows: list[dict]
  frontier_rows: Sequence[dict] = ()
  proved: frozenset = frozenset()
  proved_once: frozenset = frozenset()

  @property
  def labels(self) -> dict[str, Any]:
    """Returns the columns that a table shows beside the numbers."""
    names = (*SHOWN, "unit", "train_length")
    labels = {name: self.rows[0].get(name, "") for name in names}
    return labels | {"method": self.name, "seeds": self.seeds_text}

  @property
  def seeds(self) -> list[int]:
    """Returns the seeds in order."""
    return sorted({row["seed"] for row in self.rows})

  @property
  def seeds_text(self) -> str:
    """Returns the number of seeds as text: "5", or "3 of 5" if two are missing.

    If the curve has rows of several runs, the numbers are those of the run with
    the most seeds missing.
    """
    seeds_by_run = {}
    for row in self.rows:
      run = row.get("run"), row["config_hash"], row["seeds_asked"]
      seeds_by_run.setdefault(run, set()).add(row["seed"])
    # (seeds that have rows, seeds that the config has) of every run.
    counts = [
      (len(seeds), num_configured)
      for (_, _, num_configured), seeds in seeds_by_run.items()
    ]
    evaluated, configured = min(counts, key=lambda pair: pair[0] - pair[1])
    if evaluated < configured:
      return f"{evaluated} of {configured}"
    return str(evaluated)

  @property
  def is_stress(self) -> bool:
    """Returns whether its test set is one of those that eval.stress adds."""
    return any(row.get("stress") for row in self.rows)

  @property
  def proved_seeds(self) -> set[int]:
    """Returns the seeds whose models both checkers proved right at every
    length."""
    return self._seeds_of(self.proved)

  @property
  def seeds_proved_once(self) -> set[int]:
    """Returns the seeds whose models one checker alone proved right."""
    return self._seeds_of(self.proved_once)

  def _seeds_of(self, models: frozenset) -> set[int]:
    """Returns the seeds all of whose rows are of models in the given set of
    `records.parameters`."""
    return set(self.seeds) - {
      row["seed"] for row in self.rows if parameters(row) not in models
    }

  @property
  def proof(self) -> str:
    """Returns " ∀" if both checkers proved all seeds right, " ∀ k of R" if they
    did some, and " ∀¹ …" alike for seeds that one checker alone proved."""
    marks = []
    for mark, seeds in (
      ("∀", self.proved_seeds),
      ("∀¹", self.seeds_proved_once),
    ):
      share = f" {len(seeds)} of {len(self.seeds)}"
      if seeds:
        marks.append(mark + ("" if len(seeds) == len(self.seeds) else share))
    return " " + ", ".join(marks) if marks else ""

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

  def of_seed(self, seed: int) -> "Curve":
    """Returns the curve of one seed alone."""
    rows, frontier_rows = (
      [row for row in rows if row["seed"] == seed]
      for rows in (self.rows, self.frontier_rows)
    )
    return self._replace(rows=rows, frontier_rows=frontier_rows)


def curves(
  rows: list[dict], metric: str = "em", shown: Sequence[str] = SHOWN
) -> list[Curve]:
  """Returns the curves of a metric, with their frontiers and proofs.

  Args:
    rows: rows of any metrics; the curves are in their order.
    metric: the metric of the curves.
    shown: as in `pool`.
  """
  # If the frontier was searched up to several bounds, the greatest counts.
  frontier_curves = sorted(
    pool(of_metric(rows, "frontier")), key=lambda curve: curve.rows[0]["bound"]
  )
  frontiers = {_model(curve.rows[0]): curve.rows for curve in frontier_curves}
  both, once = proved(rows, 2), proved(rows, 1)
  return [
    curve._replace(
      frontier_rows=frontiers.get(_model(curve.rows[0]), ()),
      proved=both,
      proved_once=once,
    )
    for curve in pool(of_metric(rows, metric), shown=shown)
  ]


def sort(curves: list[Curve]) -> list[Curve]:
  """Returns curves sorted by task, method, stage, test set, width, run and
  step."""
  names = ("task", "method", "stage", "test_set", "width", "run")
  return sorted(
    curves,
    key=lambda curve: (
      *(str(curve.rows[0].get(name)) for name in names),
      curve.rows[0]["step"],
    ),
  )


def final_curve(
  rows: list[dict], stage: str = "", test_set: str = ""
) -> Curve | None:
  """Returns a run's curve of exact match in one stage and on one test set; of
  several curves, as of two steps, the first one.

  It is None if there are no such rows. Test sets that eval.stress adds do not
  count.

  Args:
    rows: rows of one run.
    stage: the stage; "" for the first one of STAGES_LAST_FIRST with rows of
      exact match.
    test_set: the test set; "" for the first one in the rows.
  """
  exact_rows = [row for row in of_metric(rows, "em") if not row.get("stress")]
  certificates = of_metric(rows, "certified")
  for candidate in (stage,) if stage else STAGES_LAST_FIRST:
    stage_rows = [row for row in exact_rows if row["stage"] == candidate]
    if stage_rows:
      test_set = test_set or stage_rows[0]["test_set"]
      test_rows = [row for row in stage_rows if row["test_set"] == test_set]
      return curves(test_rows + certificates)[0] if test_rows else None
  return None


def single_curve(rows: list[dict], source: str) -> Curve:
  """Pools rows that must all belong to one curve, and returns it.

  Args:
    rows: rows of one metric.
    source: where they come from, the beginning of an error message.

  Raises:
    UsageError: the rows differ in conditions, which the message names.
  """
  pooled = pool(rows)
  names = "; ".join(curve.name for curve in pooled)
  check(len(pooled) == 1, f"{source}: rows of different conditions: {names}")
  return pooled[0]


def pool(
  rows: list[dict],
  cell_fields: Sequence[str] = ("length",),
  dependent: Sequence[str] = ("bits",),
  shown: Sequence[str] = (),
) -> list[Curve]:
  """Groups rows by their conditions into curves, in the order of the rows.

  Args:
    rows: rows of one or more runs.
    cell_fields: fields that vary within a curve: those of the columns of a
      table, of the x-axis and panels of a figure, or of the lines and columns
      of a heat map.
    dependent: conditions that may also vary within a curve because they follow
      from `cell_fields`: "bits", which is the length in bits, or the run if a
      cell field is the method or a config field. A cell has only rows that
      agree in them with its last row.
    shown: fields that are shown beside the name; only curves that agree in them
      need different names.
  """
  conditions = [
    name for name in CONDITIONS if name not in (*cell_fields, *dependent)
  ]
  pooled, labels, dependent_values = {}, {}, {}
  for row in rows:
    condition = _values(row, conditions)
    cell = tuple(row[field] for field in cell_fields)
    pooled.setdefault(condition, {})[cell, row["seed"]] = row
    dependent_values[condition, cell] = _values(row, dependent)
    labels[condition] = model_name(row), *(row.get(field) for field in shown)
  results = []
  for condition, rows_by_cell in pooled.items():
    name = labels[condition][0]
    # The name gets the values that tell this curve from others with its labels.
    others = [other for other in pooled if labels[other] == labels[condition]]
    for index, (field, value) in enumerate(
      zip(conditions, condition, strict=True)
    ):
      if len({other[index] for other in others}) > 1:
        heading = HEADINGS.get(field, field)
        name += f", {heading} {value}".replace("  ", " ")
        others = [other for other in others if other[index] == value]
    curve_rows = [
      row
      for (cell, _), row in rows_by_cell.items()
      if _values(row, dependent) == dependent_values[condition, cell]
    ]
    results.append(Curve(name, curve_rows))
  return results


def proved(rows: list[dict], num_checkers: int) -> frozenset[tuple]:
  """Returns `records.parameters` of the models that exactly `num_checkers` of
  the checkers proved right, by their last certificates."""
  certificates = {
    parameters(row): row for row in rows if row["metric"] == "certified"
  }
  return frozenset(
    key
    for key, row in certificates.items()
    if len(checkers(row)) == num_checkers
  )


def model_name(row: dict) -> str:
  """Returns a row's method and its unusual settings, like "abc (retrain) LEAK".

  LEAK says that bias.allow_leak is set: attention may see later outputs.
  """
  settings = []
  if row["stage"] != "train":
    settings.append(row["stage"])
  if row["checkpoint"] != "last":
    settings.append(f"checkpoint {row['checkpoint']}")
  if row["eval_seed"]:
    settings.append(f"eval.seed {row['eval_seed']}")
  text = f" ({', '.join(settings)})" if settings else ""
  return row["method"] + text + (" LEAK" if row["leak"] else "")


def joined_values(rows: list[dict], field: str) -> str:
  """Returns the values of a field as text, like "natural" or "fixed or
  natural"."""
  return " or ".join(sorted({str(row[field]) for row in rows}))


def _model(row: dict) -> tuple:
  """Returns the values of the conditions of a row that are the same for all its
  model's metrics and lengths."""
  others = ("metric", "length", "bits", "bound")
  return _values(row, [name for name in CONDITIONS if name not in others])


def _values(row: dict, fields: Sequence[str]) -> tuple:
  """Returns a row's values of some conditions, None for those it lacks and for
  a step that differs between seeds."""
  has_own_step = row["checkpoint"] == "best" or row["stage"] == "finetune"
  return tuple(
    None if has_own_step and field == "step" else row.get(field)
    for field in fields
  )
