"""Pools result rows over seeds: a pandas frame with the statistics of every
cell of a table.

Rows that agree in all conditions (the fields of `records.Conditions`) but the
length are one *curve*: a line of a table or of a figure. If a seed was measured
several times, the last one counts. The step of a checkpoint is a condition, but
for checkpoint "best" and after finetuning, where every seed has its own.
"""

import math
from collections.abc import Iterable, Sequence

import pandas as pd

from lengthgen_jax.results import records
from lengthgen_jax.results.records import CONDITIONS

FRONTIER = math.inf  # stands for the length of a cell of the frontier
# What a condition is called in the name of a curve, if not by its field; ""
# where its value speaks for itself.
HEADINGS = {
  **dict.fromkeys(("task", "family", "run"), ""),
  "test_set": "test set",
  "train_length": "trained up to",
  "train_data": "training data",
  "eval_seed": "eval.seed",
  "unit": "in",
  "config_hash": "config",
}
# Conditions that change with the value of a config field.
BY_CONFIG = (
  *("run", "config_hash", "step", "slack", "train_length", "train_data"),
  *("normalizer", "segments", "prune"),
)
# The columns of `cells`.
COLUMNS = (
  *("curve", "name", *CONDITIONS, "stress", "median", "worst", "best"),
  *("lower_bound", "values", "n", "seeds", "seeds_asked", "asked"),
  *("in_curve", "proved"),
)
SHOWN = ("task", "test_set", "width", "run")  # columns beside a curve's name
# Stages from the last to the first: a run's last one stands for it. The stage
# "interpolate" never does.
STAGES_LAST_FIRST = ("finetune", "retrain", "train")


def frame(rows: list[dict], metrics: Sequence[str]) -> pd.DataFrame:
  """Returns the rows of some metrics that have a value as a frame, in which ""
  stands for a condition that a row lacks, and `is_proved` says whether the
  row's model is proved right, by its last certificate."""
  certificates = {
    records.parameters(row): row["value"] == 1
    for row in rows
    if row["metric"] == "certified"
  }
  table = []
  for row in rows:
    if row["metric"] in metrics and row["value"] is not None:
      has_own_step = row["checkpoint"] == "best" or row["stage"] == "finetune"
      table.append(
        {"stress": None}
        | row
        | {name: "" for name in CONDITIONS if row.get(name) is None}
        | ({"step": ""} if has_own_step else {})
        | {"is_proved": certificates.get(records.parameters(row), False)}
      )
  return pd.DataFrame(table, dtype=object)


def cells(
  rows: list[dict],
  metric: str = "em",
  by: Sequence[str] = ("length",),
  shown: Sequence[str] = SHOWN,
  dependent: Sequence[str] = (),
) -> pd.DataFrame:
  """Returns a frame with a line for every cell: the statistics over the seeds
  of a curve at one length.

  Columns: `curve` (a number), `name` (the method, and the conditions in which
  the curve differs from others), the conditions, and

  - median: "not a number" if there are two seeds, whose median is no result.
  - worst, best, and lower_bound, the worst seed's one-sided 95 % bound.
  - values: those of all seeds, in the seeds' order; seeds: how many.
  - n: the smallest number of samples of a seed.
  - asked: as text how many seeds the curve has: "5", or "3 of 5" if two of the
    config's are missing; of several runs, those of which most are missing.
  - proved: how many seeds are proved right.

  Cells of exact match by length include the frontier, at the length FRONTIER;
  of several searches the one with the greatest bound counts.

  Args:
    by: fields that vary within a curve, like those of the x axis and of panels.
    shown: fields that stand beside the name, which must not say them too; with
      "seed" each seed is a curve.
    dependent: conditions that may vary within a curve because they follow from
      `by`. A cell has only rows that agree in them with its last row.
  """
  has_frontier = metric == "em" and tuple(by) == ("length",)
  table = frame(rows, [metric] + ["frontier"] * has_frontier)
  if table.empty:
    return pd.DataFrame(columns=[*COLUMNS, *set(shown) - set(COLUMNS)])
  varied = {*by, *dependent, "bits", "bound", "metric"}
  conditions = [name for name in CONDITIONS if name not in varied]
  conditions += [name for name in shown if name not in CONDITIONS]
  table["value"] = table.value.astype(float)
  table["curve"] = table.groupby(conditions, sort=False).ngroup()
  searched = table.metric == "frontier"
  table["bound"] = table.bound.where(searched, 0).astype(float)
  table["length"] = table.length.mask(searched, FRONTIER)
  greatest = table.groupby("curve").bound.transform("max")
  table = table[~searched | (table.bound == greatest)]
  cell = ["curve", *by]
  if dependent:
    values = table[list(dependent)].apply(tuple, axis=1)
    last = values.groupby([table[name] for name in cell]).transform("last")
    table = table[values == last]
  table = table.drop_duplicates([*cell, "seed"], keep="last")
  measured = table[table.metric == metric]
  table = table[table.curve.isin(measured.curve)]

  # The first of a sorted cell is the worst: the greatest edit distance.
  by_value = table.sort_values(
    "value", ascending=metric != "edit", kind="stable"
  )
  values = table.sort_values("seed", kind="stable").groupby(cell).value
  statistics = by_value.groupby(cell).agg(
    median=("value", "median"),
    worst=("value", "first"),
    best=("value", "last"),
    lower_bound=("lower_bound", "first"),
    n=("n", "min"),
    seeds=("seed", "nunique"),
    bits=("bits", "first"),
    bound=("bound", "max"),
  )
  statistics["values"] = values.agg(list)
  statistics["median"] = statistics["median"].where(statistics.seeds != 2)
  curves = measured.drop_duplicates("curve").set_index("curve")
  curves["name"] = _names(curves, conditions, shown)
  statistics = statistics.reset_index()
  curves = curves[[x for x in curves if x not in statistics]]
  return statistics.join(curves, "curve").join(_seeds(measured), "curve")


def _names(
  curves: pd.DataFrame, conditions: list[str], shown: Sequence[str]
) -> pd.Series:
  """Returns the methods with the conditions that tell curves apart, one after
  the other until they do."""
  names = pd.Series(
    [model_name(row) for row in curves.to_dict("records")], curves.index
  )
  differing = curves[conditions].nunique() > 1
  for field in differing.index[differing]:
    labels = [names, *(curves[name] for name in shown)]
    differs = curves.groupby(labels)[field].transform("nunique") > 1
    heading = HEADINGS.get(field, field)
    said = curves[field].map(lambda x, to=heading: f", {to} {x}".strip())
    names += said.str.replace("  ", " ").where(differs, "")
  return names


def _seeds(measured: pd.DataFrame) -> pd.DataFrame:
  """Returns the columns `asked` and `proved` by curve (see `cells`), and
  `in_curve`, the number of all its seeds."""
  run = ["curve", "run", "config_hash", "seeds_asked"]
  runs = measured.groupby(run).seed.nunique().rename("seeds").reset_index()
  runs["missing"] = runs.seeds_asked - runs.seeds
  runs = runs.sort_values("missing").groupby("curve").last()
  partial = runs.seeds < runs.seeds_asked
  of_all = " of " + runs.seeds_asked.astype(str)
  proved = measured.groupby(["curve", "seed"]).is_proved.all()
  return pd.DataFrame(
    {
      "asked": runs.seeds.astype(str) + of_all.where(partial, ""),
      "in_curve": proved.groupby("curve").size(),
      "proved": proved.groupby("curve").sum(),
    }
  )


def final(rows: list[dict], stage: str = "", test_set: str = "") -> list:
  """Returns the cells of exact match of one run's last stage, or of `stage`, of
  the first test set that eval.stress did not add, or of `test_set`."""
  tested = [row for row in rows if not row.get("stress")]
  exact_rows = records.of_metric(tested, "em")
  stages = {row["stage"] for row in exact_rows}
  stage = stage or next((x for x in STAGES_LAST_FIRST if x in stages), "")
  exact_rows = [row for row in exact_rows if row["stage"] == stage]
  if not exact_rows:
    return []
  test_set = test_set or exact_rows[0]["test_set"]
  exact_rows = [row for row in exact_rows if row["test_set"] == test_set]
  certificates = [row for row in rows if row["metric"] == "certified"]
  table = cells(exact_rows + certificates)
  return list(table[table.curve == table.curve.min()].itertuples())


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


def joined(values: Iterable) -> str:
  return " or ".join(sorted(map(str, set(values))))
