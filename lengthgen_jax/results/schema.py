"""The one vocabulary of result rows: what makes a row unique, what may be
pooled, what fields are called.

Only seeds are pooled. Rows of one pool agree in every condition (GROUP) and
hold each seed once. `step` is the step of the checkpoint that was read, the
same for all seeds of an evaluation, so it is a condition: two evaluations of a
run that went on in between never meet. `stopped_at`, the step at which a seed
froze by itself, is the seed's own and no condition. With checkpoint "best",
`step` is the seed's own too (where its validation was best) and no condition
either; a seed that was evaluated again counts once, as it was last. `groups` is
the one place that knows this.
"""

from numbers import Number
from typing import NamedTuple

from lengthgen_jax.errors import check


class Field(NamedTuple):
  """A field of a row.

  key: rows that differ in it are different measurements.
  group: rows that differ in it are never pooled.
  heading: what its value is called in a table or a figure.
  optional: a row may lack it.
  """

  name: str
  key: bool
  group: bool
  heading: str = ""
  optional: bool = False


# In the order in which names of lines use them to tell each other apart.
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
  # Of probes: where inside a model (an attention site, or a place of the
  # residual stream), and which line of a bias.
  *(
    Field(name, key=True, group=True, heading=name, optional=True)
    for name in ("part", "layer", "head", "line")
  ),
  Field("config_hash", key=True, group=True, heading="config"),
  Field("version", key=True, group=True, heading="version"),
  # How far a frontier was looked for.
  Field("bound", key=False, group=True, heading="up to", optional=True),
  Field("seed", key=True, group=False, heading="seed"),
  Field("stopped_at", key=True, group=False),
  Field("seeds_asked", key=False, group=False),  # how many, successful or not
  # What was measured. None where it means nothing, or there is no result.
  Field("value", key=False, group=False),
  Field("lower_bound", key=False, group=False),
  Field("n", key=False, group=False),
  # Whether eval.stress asked for the test set.
  Field("stress", key=False, group=False, optional=True),
  Field("correct", key=False, group=False, optional=True),
  Field("teacher_forced", key=False, group=False, optional=True),
  Field("by_position", key=False, group=False, optional=True),
  # Of a frontier: [length, correct, n] of every length that was tried.
  Field("tried", key=False, group=False, optional=True),
  Field("margin", key=False, group=False, optional=True),  # of `certified`
  Field("reason", key=False, group=False, optional=True),  # of the same
)
KEY = tuple(field.name for field in FIELDS if field.key)
GROUP = tuple(field.name for field in FIELDS if field.group)
HEADINGS = {field.name: field.heading for field in FIELDS}
# Conditions that another value of a config field brings with it.
BY_CONFIG = "run", "config_hash", "step", "slack", "train_length", "train_data"
NUMBERS = "value", "lower_bound", "n"
NEEDED = {field.name for field in FIELDS if not field.optional}


def key(row: dict) -> tuple:
  """Rows with the same key are the same measurement."""
  return tuple(row.get(name) for name in KEY)


def flaw(row) -> str:
  """What keeps a row from being one, "" if nothing does."""
  if not isinstance(row, dict):
    return "is no object"
  if missing := sorted(NEEDED - set(row)):
    return f"lacks {', '.join(missing)}"
  if unknown := sorted(set(row) - set(HEADINGS)):
    return f"has unknown {', '.join(unknown)}"
  odd = [name for name in NUMBERS if not isinstance(row[name], Number | None)]
  return f"has {odd[0]}={row[odd[0]]!r}, which is no number" if odd else ""


def of_metric(rows: list[dict], metric: str) -> list[dict]:
  """Rows of a metric that have a value."""
  return [
    row for row in rows if row["metric"] == metric and row["value"] is not None
  ]


def values(rows: list[dict], field: str) -> str:
  """A field's values in rows, "natural" or "fixed or natural"."""
  return " or ".join(sorted({str(row[field]) for row in rows}))


# What a frontier row shares with the exact match of the same models.
ALIKE = [f for f in GROUP if f not in ("metric", "length", "bits", "bound")]


def model(row: dict) -> tuple:
  """Which models, on which test set, a row is about, whatever was measured."""
  return _condition(row, ALIKE)


PROVED = ("run", "config_hash", "stage", "checkpoint", "step", "seed")


def proved(rows: list[dict]) -> set:
  """Models, by PROVED, whose last certificate says that they are right."""
  last = {parameters(row): row for row in of_metric(rows, "certified")}
  return {key for key, row in last.items() if row["value"] == 1}


def parameters(row: dict) -> tuple:
  """Which trained parameters a row is of, by PROVED."""
  return tuple(row.get(field) for field in PROVED)


def for_all(rows: list[dict], models: set) -> str:
  """ " ∀" if the models of all rows are among those proved, " ∀ k of R" if some
  are, "" if none is."""
  own = {parameters(row) for row in rows}
  count = len(own & models)
  if not count:
    return ""
  return " ∀" if count == len(own) else f" ∀ {count} of {len(own)}"


def name(row: dict) -> str:
  """A method, and what is not as usual: "abc (retrain) LEAK"."""
  unusual = {
    row["stage"]: row["stage"] != "train",
    f"checkpoint {row['checkpoint']}": row["checkpoint"] != "last",
    f"eval.seed {row['eval_seed']}": row["eval_seed"],
  }
  marks = ", ".join(mark for mark, holds in unusual.items() if holds)
  leak = " LEAK" if row["leak"] else ""
  return row["method"] + (f" ({marks})" if marks else "") + leak


class Group(NamedTuple):
  """Rows of one line: at each place every seed once, all conditions equal."""

  name: str
  rows: list[dict]

  @property
  def seeds(self) -> str:
    """How many there are: "5", or "3 of 5" if more were asked for; of several
    runs, those of the one that lacks the most."""
    runs = {}
    for row in self.rows:
      run = row.get("run"), row["config_hash"], row["seeds_asked"]
      runs.setdefault(run, set()).add(row["seed"])
    counts = [(len(seeds), run[-1]) for run, seeds in runs.items()]
    found, asked = min(counts, key=lambda count: count[0] - count[1])
    return f"{found} of {asked}" if found < asked else str(found)


def only_group(rows: list[dict], what: str) -> Group:
  """The one line that rows are.

  Raises:
    UsageError: they are of different conditions; the message tells them apart.
  """
  found = groups(rows)
  names = "; ".join(group.name for group in found)
  check(len(found) == 1, f"{what}: rows of different conditions: {names}")
  return found[0]


def groups(rows: list[dict], along=("length",), free=("bits",), shown=()):
  """The lines of a table or a figure.

  Args:
    rows: of one or more runs.
    along: fields that differ along a line: columns, or an axis and panels.
    free: further conditions that may differ from place to place, as they
      follow from those (the run, on an axis of a config field).
    shown: fields that a reader sees beside the name.

  Returns:
    [Group], in the order of the rows. Rows of a line at one place agree in all
    other conditions, free ones too (the last row's), and have one row a seed,
    the last one. Names differ wherever `shown` fields do not.
  """
  held = [field for field in GROUP if field not in (*along, *free)]
  lines, texts, last = {}, {}, {}
  for row in rows:
    condition = _condition(row, held)
    place = tuple(row[field] for field in along)
    lines.setdefault(condition, {})[place, row["seed"]] = row
    last[condition, place] = _condition(row, free)
    texts[condition] = name(row), *(row.get(field) for field in shown)
  found = []
  for condition, at in lines.items():
    text = texts[condition][0]
    alike = [c for c in lines if texts[c] == texts[condition]]
    for i, field in enumerate(held):
      if len({c[i] for c in alike}) > 1:
        text += f", {HEADINGS[field]} {condition[i]}".replace("  ", " ")
        alike = [c for c in alike if c[i] == condition[i]]
    own = [
      row
      for (place, _), row in at.items()
      if _condition(row, free) == last[condition, place]
    ]
    found.append(Group(text, own))
  return found


def _condition(row: dict, fields) -> tuple:
  """A row's values of fields; of the best checkpoint the step is the seed's
  own and none."""
  own = ("step",) if row["checkpoint"] == "best" else ()
  return tuple(None if f in own else row.get(f) for f in fields)
