"""The schema of result rows: their fields, their keys and their groups.

FIELDS says what fields are called, which make a row unique (KEY), and in which
rows must agree to be pooled (GROUP).

Only seeds are pooled. Rows of one pool agree in every condition (GROUP) and
hold each seed once. `step` is the step of the checkpoint that was read, the
same for all seeds of an evaluation, so it is a condition: two evaluations of a
run that was trained further in between are never pooled. `stopped_at`, the step
at which a seed was frozen, differs between seeds and is no condition. With
checkpoint "best", `step` differs between seeds too (it is where the validation
of a seed was best) and is no condition either. Of a seed that was evaluated
several times the last evaluation counts. All of this is decided in `groups`.
"""

from numbers import Number
from typing import NamedTuple

from lengthgen_jax.errors import check


class Field(NamedTuple):
  """A field of a row.

  Attributes:
    name: the name of the field.
    key: whether rows that differ in it are different measurements.
    group: whether rows that differ in it are never pooled.
    heading: what its value is called in a table or a figure.
    optional: whether a row may lack it.
  """

  name: str
  key: bool
  group: bool
  heading: str = ""
  optional: bool = False


# The order is that in which fields are added to the names of lines until the
# names differ.
FIELDS = (
  # The workdir, added where several files are read together.
  Field("run", key=False, group=True, optional=True),
  Field("task", key=True, group=True),
  Field("method", key=True, group=True, heading="method"),
  Field("stage", key=True, group=True, heading="stage"),
  Field("family", key=True, group=True),
  Field("test_set", key=True, group=True, heading="test set"),
  Field("width", key=True, group=True, heading="width"),
  Field("slack", key=True, group=True, heading="slack"),
  Field("train_length", key=True, group=True, heading="trained up to"),
  Field("train_data", key=True, group=True, heading="training data"),
  Field("leak", key=True, group=True, heading="leak"),
  Field("checkpoint", key=True, group=True, heading="checkpoint"),
  Field("step", key=True, group=True, heading="step"),
  Field("eval_seed", key=True, group=True, heading="eval.seed"),
  Field("length", key=True, group=True, heading="length"),
  Field("bits", key=True, group=True, heading="bits"),
  Field("unit", key=True, group=True, heading="in"),  # what lengths count
  Field("metric", key=True, group=True),
  Field("position", key=True, group=True, heading="position"),
  # Probes alone have these: where inside a model they look (an attention site,
  # or a place in the residual stream), and at which line of a bias.
  *(
    Field(name, key=True, group=True, heading=name, optional=True)
    for name in ("part", "layer", "head", "line")
  ),
  Field("config_hash", key=True, group=True, heading="config"),
  Field("version", key=True, group=True, heading="version"),
  # The greatest length at which a frontier was looked for.
  Field("bound", key=False, group=True, heading="up to", optional=True),
  Field("seed", key=True, group=False, heading="seed"),
  Field("stopped_at", key=True, group=False),
  Field("seeds_asked", key=False, group=False),  # how many the config has
  # The result. It is None where it means nothing, or where there is none.
  Field("value", key=False, group=False),
  Field("lower_bound", key=False, group=False),
  Field("n", key=False, group=False),
  # Whether the test set is one that eval.stress asked for.
  Field("stress", key=False, group=False, optional=True),
  Field("correct", key=False, group=False, optional=True),
  Field("teacher_forced", key=False, group=False, optional=True),
  Field("by_position", key=False, group=False, optional=True),
  # A frontier has [length, correct, n] of every length that was tried.
  Field("tried", key=False, group=False, optional=True),
  Field("margin", key=False, group=False, optional=True),  # of a certificate
  Field("reason", key=False, group=False, optional=True),  # of the same
)
KEY = tuple(field.name for field in FIELDS if field.key)
GROUP = tuple(field.name for field in FIELDS if field.group)
HEADINGS = {field.name: field.heading for field in FIELDS}
# Conditions that change with the value of a config field.
BY_CONFIG = "run", "config_hash", "step", "slack", "train_length", "train_data"
NUMBERS = "value", "lower_bound", "n"
NEEDED = {field.name for field in FIELDS if not field.optional}


def key(row: dict) -> tuple:
  """Returns the key of a row: rows with the same key are one measurement."""
  return tuple(row.get(name) for name in KEY)


def flaw(row) -> str:
  """Returns why a value is no row of this schema, "" if it is one."""
  if not isinstance(row, dict):
    return "is no object"
  if missing := sorted(NEEDED - set(row)):
    return f"lacks {', '.join(missing)}"
  if unknown := sorted(set(row) - set(HEADINGS)):
    return f"has unknown {', '.join(unknown)}"
  invalid = [
    name for name in NUMBERS if not isinstance(row[name], Number | None)
  ]
  return (
    f"has {invalid[0]}={row[invalid[0]]!r}, which is no number"
    if invalid
    else ""
  )


def of_metric(rows: list[dict], metric: str) -> list[dict]:
  """Returns the rows of a metric that have a value."""
  return [
    row for row in rows if row["metric"] == metric and row["value"] is not None
  ]


def values(rows: list[dict], field: str) -> str:
  """Returns the values of a field: "natural", or "fixed or natural"."""
  return " or ".join(sorted({str(row[field]) for row in rows}))


# The fields that a frontier row shares with exact match of the same models.
ALIKE = [f for f in GROUP if f not in ("metric", "length", "bits", "bound")]


def model(row: dict) -> tuple:
  """Returns which models on which test set a row is about, for any metric."""
  return _condition(row, ALIKE)


PROVED = ("run", "config_hash", "stage", "checkpoint", "step", "seed")


def proved(rows: list[dict]) -> set:
  """Returns the models whose last certificate proves them right, by PROVED."""
  last = {parameters(row): row for row in of_metric(rows, "certified")}
  return {key for key, row in last.items() if row["value"] == 1}


def parameters(row: dict) -> tuple:
  """Returns which trained parameters a row is about, by PROVED."""
  return tuple(row.get(field) for field in PROVED)


def proof_mark(rows: list[dict], models: set) -> str:
  """Returns a mark for rows whose models are proved right.

  Args:
    rows: rows of any metric.
    models: what `proved` returns.

  Returns:
    " ∀" if the models of all rows are proved, " ∀ k of R" if k of R are, "" if
    none is.
  """
  row_models = {parameters(row) for row in rows}
  count = len(row_models & models)
  if not count:
    return ""
  return (
    " ∀" if count == len(row_models) else f" ∀ {count} of {len(row_models)}"
  )


def name(row: dict) -> str:
  """Returns a row's method and what is unusual: "abc (retrain) LEAK"."""
  unusual = {
    row["stage"]: row["stage"] != "train",
    f"checkpoint {row['checkpoint']}": row["checkpoint"] != "last",
    f"eval.seed {row['eval_seed']}": row["eval_seed"],
  }
  marks = ", ".join(mark for mark, holds in unusual.items() if holds)
  leak = " LEAK" if row["leak"] else ""
  return row["method"] + (f" ({marks})" if marks else "") + leak


class Group(NamedTuple):
  """The rows of one line: each seed once at each place, under equal conditions.

  Attributes:
    name: the method, and the conditions in which it differs from other lines.
    rows: the rows.
  """

  name: str
  rows: list[dict]

  @property
  def seeds(self) -> str:
    """Returns how many seeds there are: "5", or "3 of 5" if two are missing.

    Of several runs it is the run that lacks the most.
    """
    runs = {}
    for row in self.rows:
      run = row.get("run"), row["config_hash"], row["seeds_asked"]
      runs.setdefault(run, set()).add(row["seed"])
    counts = [(len(seeds), run[-1]) for run, seeds in runs.items()]
    evaluated, requested = min(counts, key=lambda count: count[0] - count[1])
    return (
      f"{evaluated} of {requested}" if evaluated < requested else str(evaluated)
    )


def only_group(rows: list[dict], what: str) -> Group:
  """Returns the group of rows that all belong to one line.

  Args:
    rows: rows of one or more runs.
    what: the beginning of the error's message.

  Raises:
    UsageError: they are of different conditions, which the message names.
  """
  lines = groups(rows)
  names = "; ".join(group.name for group in lines)
  check(len(lines) == 1, f"{what}: rows of different conditions: {names}")
  return lines[0]


def groups(
  rows: list[dict],
  along: tuple[str, ...] = ("length",),
  free: tuple[str, ...] = ("bits",),
  shown: tuple[str, ...] = (),
) -> list[Group]:
  """Groups rows into the lines of a table or a figure.

  Args:
    rows: rows of one or more runs.
    along: fields that differ along a line: columns, or an axis and panels.
    free: further conditions that may differ from place to place, because they
      follow from those (such as the run, on an axis of a config field).
    shown: fields that a reader sees beside the name.

  Returns:
    The groups, in the order of the rows. Rows of a line at one place agree in
    all other conditions, the free ones included (those of the last row), and
    there is one row per seed, the last one. Names of groups differ wherever
    their `shown` fields do not.
  """
  conditions = [field for field in GROUP if field not in (*along, *free)]
  lines, texts, last = {}, {}, {}
  for row in rows:
    condition = _condition(row, conditions)
    place = tuple(row[field] for field in along)
    lines.setdefault(condition, {})[place, row["seed"]] = row
    last[condition, place] = _condition(row, free)
    texts[condition] = name(row), *(row.get(field) for field in shown)
  results = []
  for condition, rows_at in lines.items():
    text = texts[condition][0]
    namesakes = [other for other in lines if texts[other] == texts[condition]]
    for i, field in enumerate(conditions):
      if len({other[i] for other in namesakes}) > 1:
        text += f", {HEADINGS[field]} {condition[i]}".replace("  ", " ")
        namesakes = [other for other in namesakes if other[i] == condition[i]]
    line_rows = [
      row
      for (place, _), row in rows_at.items()
      if _condition(row, free) == last[condition, place]
    ]
    results.append(Group(text, line_rows))
  return results


def _condition(row: dict, fields: tuple[str, ...] | list[str]) -> tuple:
  """Returns the values of fields in a row.

  With checkpoint "best" the step differs between seeds, and counts as None.
  """
  excluded = ("step",) if row["checkpoint"] == "best" else ()
  return tuple(
    None if field in excluded else row.get(field) for field in fields
  )
