"""A figure of squares: exact match on every test set at every length.

Figures of result rows.

Figures of kept rows, methods named as the papers name them.

How far tests go beyond training: ours and published marks, one figure.
"""

import functools
import pathlib
from typing import NamedTuple

import numpy as np

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.errors import check
from lengthgen_jax.results import schema, summary

NOTHING = "a figure with nothing to show: there are no rows for it"


def by_test_set(rows: list[dict], path, title: str, metric: str = "em"):
  """EM on every test set at every length, median of seeds: a panel per method
  and conditions."""
  rows = schema.of_metric(rows, metric)
  groups = schema.groups(rows, along=("test_set", "length"))
  return _draw(rows, groups, path, title, "test_set")


def by_method(rows: list[dict], path, title: str):
  """EM of every method at every length, median of seeds: a panel per test set
  and conditions, for more methods than lines could tell apart."""
  rows = schema.of_metric(rows, "em")
  along, free = ("method", "length"), ("bits", *schema.BY_CONFIG)
  groups = schema.groups(rows, along, free)
  groups = [g._replace(name=g.rows[0]["test_set"]) for g in groups]
  return _draw(rows, groups, path, title, "method")


def _draw(rows: list[dict], groups, path, title: str, by: str):
  """A panel for each group: values of the field `by` against lengths."""
  check(rows, NOTHING)
  sets = list(dict.fromkeys(row[by] for row in rows))
  lengths = sorted({row["length"] for row in rows})
  columns = min(len(groups), 4)
  down = -(-len(groups) // columns)
  size = (
    1.5 + (0.6 * len(lengths) + 0.9) * columns,
    1 + 0.3 * len(sets) * down,
  )
  figure, axes = plt.subplots(
    down, columns, figsize=size, squeeze=False, sharey=True
  )
  for axis in axes.flat[len(groups) :]:
    axis.set_visible(False)
  for axis, group in zip(axes.flat, groups, strict=False):
    found = {}
    for row in group.rows:
      place = sets.index(row[by]), lengths.index(row["length"])
      found.setdefault(place, []).append(100 * row["value"])
    cells = np.full((len(sets), len(lengths)), np.nan)
    for place, values in found.items():
      cells[place] = np.median(values)
      text = {"ha": "center", "va": "center", "fontsize": 7}
      color = "white" if cells[place] < 60 else "black"
      axis.text(*place[::-1], f"{cells[place]:.3g}", color=color, **text)
    axis.imshow(cells, vmin=0, vmax=100, aspect="auto")
    axis.set_xticks(range(len(lengths)), lengths, fontsize=8)
    axis.set_yticks(range(len(sets)), sets, fontsize=8)
    axis.set_title(group.name, fontsize=8)
  figure.supxlabel(f"test length ({schema.values(rows, 'unit')})", fontsize=9)
  figure.suptitle(f"{title}: exact match (%)", fontsize=10)
  figure.tight_layout()
  return save(figure, path)


# Of a metric: what its axis says, and its range.
AXES = {
  "em": ("exact match (%)", (-3, 103)),
  "edit": ("edit distance (% of the output)", (0, None)),
}
MARKERS = "os^vDPX*"
STYLES = ("-", "--", ":")  # after every ten colors


def by_length(rows: list[dict], path, title: str, metric: str = "em"):
  """EM or edit distance against test length: a line per method and conditions
  (median of seeds), a band from the worst seed (its lower bound, where there
  is one) to the best, one panel per test set."""
  rows = schema.of_metric(rows, metric)
  groups = schema.groups(rows, along=("test_set", "length"))
  for axis, test_set, panel in _panels(rows, groups, "length", "test_set"):
    for train_length in {row["train_length"] for row in panel}:
      _mark(axis, train_length, "longest trained")
    _dress(
      axis,
      [row["length"] for row in panel],
      f"test length ({schema.values(panel, 'unit')})",
      f"test set: {test_set}",
    )
  return _finish(axis.figure, title, path, metric)


# Test sets that are drawn against the number R that ends their names.
TIMES = {
  "repetition": ("repeats_", "how often each of the repeated items occurs"),
  "multiplicity": ("multiplicity_x", "how often every value occurs"),
}


def by_times(rows: list[dict], path, title: str, metric="em", what=""):
  """EM or edit distance against how often items occur: a line per method,
  conditions and length, median of seeds. Rows are those of test sets
  `repeats_KxR` or `multiplicity_xR`, by `what` of TIMES."""
  apart = []
  for row in schema.of_metric(rows, metric):
    test_set, _, times = row["test_set"].rpartition("x")
    method = f"{row['method']}, {row['length']} {row['unit']}"
    apart.append(
      row | {"test_set": test_set, "times": int(times), "method": method}
    )
  groups = schema.groups(apart, along=("times",))
  for axis, _, panel in _panels(apart, groups, "times", "metric"):
    _dress(axis, [row["times"] for row in panel], TIMES[what][1])
  return _finish(axis.figure, title, path, metric)


def by_field(rows: list[dict], path, title: str, field: str):
  """EM against a config field, which rows hold by its name: a line per method
  and conditions, median of a run's seeds, one panel per test length."""
  rows = schema.of_metric(rows, "em")
  groups = schema.groups(rows, (field, "length"), ("bits", *schema.BY_CONFIG))
  values = [row[field] for row in rows]
  for axis, length, panel in _panels(rows, groups, field, "length"):
    heading = f"test length: {length} {schema.values(panel, 'unit')}"
    _dress(axis, values, field, heading, 0 < 10 * min(values) < max(values))
  return _finish(axis.figure, title, path, "em")


def _panels(rows: list[dict], groups, x: str, by: str):
  """Draws a panel for each value of the field `by`: all groups against `x`.

  Args:
    rows: of one metric, at least one.
    groups: of these rows; each keeps its color in all panels.
    x, by: fields of rows.

  Yields:
    (axis, value, the panel's rows).
  """
  check(rows, NOTHING)
  values = sorted({row[by] for row in rows})
  size = (1.5 + 4.2 * len(values), 3.8)
  _, axes = plt.subplots(1, len(values), figsize=size, squeeze=False)
  for axis, value in zip(axes[0], values, strict=True):
    for i, group in enumerate(groups):
      _line(axis, i, group, x, [r for r in group.rows if r[by] == value])
    yield axis, value, [row for row in rows if row[by] == value]


def _line(axis, i: int, group: schema.Group, x: str, rows: list[dict]) -> None:
  """Draws rows of the i-th group, and their seeds' range, against `x`."""
  places = sorted({row[x] for row in rows})
  at = [[row for row in rows if row[x] == place] for place in places]
  median = [100 * np.median([row["value"] for row in seeds]) for seeds in at]
  low = [100 * min(map(_worst, seeds)) for seeds in at]
  high = [100 * max(row["value"] for row in seeds) for seeds in at]
  few = f" ({group.seeds} seeds)" if " of " in group.seeds else ""
  color = f"C{i % 10}"
  axis.plot(
    places,
    median,
    color=color,
    linestyle=STYLES[i // 10 % len(STYLES)],
    marker=MARKERS[i % len(MARKERS)],
    markersize=5,
    label=group.name + few,
    clip_on=False,
  )
  axis.fill_between(places, low, high, color=color, alpha=0.15, linewidth=0)


def _mark(axis, x, text: str) -> None:
  """A dotted vertical line that says what it is."""
  axis.axvline(x, color="0.6", linestyle=":", linewidth=1)
  axis.text(
    x,
    0.5,
    text,
    transform=axis.get_xaxis_transform(),
    color="0.4",
    fontsize=8,
    rotation=90,
    horizontalalignment="right",
    verticalalignment="center",
  )


def _worst(row: dict) -> float:
  bound = row["lower_bound"]
  return row["value"] if bound is None else bound


def _dress(axis, values, label: str, heading="", log=True) -> None:
  """What a panel's x axis says; ticks at the values and nowhere else."""
  if log:
    axis.set_xscale("log")
  values = sorted(set(values))
  at = np.log(values) if log else np.array(values)
  names, last = [], -np.inf
  for value, place in zip(values, at, strict=True):
    apart = place - last >= 0.05 * (at[-1] - at[0])  # else they would overlap
    names.append(f"{value:g}" if apart else "")
    last = place if apart else last
  axis.set_xticks(values, names)
  axis.minorticks_off()
  axis.set_xlabel(label)
  axis.set_title(heading, fontsize=10)


def _finish(figure, title: str, path, metric: str):
  label, limits = AXES[metric]
  plt.setp(figure.axes, ylim=limits)
  figure.axes[0].set_ylabel(label)
  figure.axes[-1].legend(
    fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False
  )
  figure.suptitle(title, fontsize=11)
  return save(figure, path)


# By metric and what it is drawn against.
NAMES = {
  ("em", "length"): "accuracy_by_length",
  ("em", "repetition"): "accuracy_by_repetition",
  ("em", "multiplicity"): "accuracy_by_multiplicity",
  ("em", "test_set"): "accuracy_on_hard_inputs",
  ("edit", "length"): "edit_distance_by_length",
  ("edit", "repetition"): "edit_distance_by_repetition",
  ("edit", "multiplicity"): "edit_distance_by_multiplicity",
}
DRAW = {
  "length": by_length,
  "repetition": functools.partial(by_times, what="repetition"),
  "multiplicity": functools.partial(by_times, what="multiplicity"),
  "test_set": by_test_set,
}


def against(row: dict) -> str:
  """What a row is drawn against."""
  for what, (start, _) in TIMES.items():
    if row["test_set"].startswith(start):
      return what
  return "test_set" if row.get("stress") else "length"


def of_run(rows: list[dict], folder, title: str, names=NAMES) -> list:
  """EM and edit distance, where measured, by length, by repetition, by
  multiplicity and on hard inputs.

  Args:
    rows: of one task.
    folder: where the figures go.
    title: of every figure.
    names: of the files, as in NAMES.

  Returns:
    Paths of what there was to draw.
  """
  made = []
  for (metric, what), name in names.items():
    mine = [r for r in schema.of_metric(rows, metric) if against(r) == what]
    if mine:
      path = pathlib.Path(folder) / f"{name}.png"
      made.append(DRAW[what](mine, path, title, metric))
  return made


LINES = 8  # that one figure can tell apart


def draw(name: str, entries: list, kept: dict, folder, along="") -> list:
  """Figures of a table: by length for each task and width, on hard inputs, and
  against a field.

  Args:
    name: of the table, with which the files' names begin.
    entries: its rows.
    kept: as in `page`.
    folder: where the figures go.
    along: the field, "" if there is none.

  Returns:
    (caption, path of a PNG) of each.
  """
  apart = {}
  for entry in entries:
    for row in kept.get(entry.run, ({}, []))[1]:
      if row["stage"] == entry.stage and row["metric"] in ("em", "edit"):
        own = {"method": entry.model, "stage": "train", "run": entry.run}
        own |= {along: entry.value} if entry.value is not None else {}
        place = row["task"], row["width"]
        apart.setdefault(place, []).append(row | own)
  made = []
  for (task, width), rows in apart.items():
    start = f"{name}_{task}_{width}"
    title = f"{task}, width={width}"
    names = {
      (metric, what): f"{start}_{metric}_by_{what}" for metric, what in NAMES
    }
    if len({row["method"] for row in rows}) > LINES:
      del names["em", "length"], names["edit", "length"]
      usual = [row for row in rows if against(row) == "length"]
      path = pathlib.Path(folder) / f"{start}_em_by_model.png"
      made.append(by_method(usual, path, title))
    made += of_run(rows, folder, title, names)
    exact = [
      row | {"method": row["method"].partition(f", {short(along)}=")[0]}
      for row in schema.of_metric(rows, "em")
      if along in row and against(row) == "length"
    ]
    if len({row[along] for row in exact}) > 1:
      path = pathlib.Path(folder) / f"{start}_by_{along}.png"
      made.append(by_field(exact, path, title, along))
  return [(path.stem.replace("_", " "), path) for path in made]


def short(field: str) -> str:
  return field.rpartition(".")[2]


STAGES = ("certify", "retrain", "train")  # the last one of a run counts
RIGHT = 0.99


class Mark(NamedTuple):
  """A length to which something was trained, and one at which it was tested.

  Attributes:
    task: marks of one stand together.
    who: method and where it is from.
    trained, tested: lengths.
    exact: exact match there, in %; None if it was not said.
    unit: of lengths.
    seeds: what is said of them, "" if published without.
    n: samples of a seed there, 0 if unknown.
  """

  task: str
  who: str
  trained: int
  tested: int
  exact: float | None
  unit: str
  seeds: str = ""
  n: int = 0


def last(rows: list[dict], stage: str = "", test_set: str = ""):
  """The summary.Line of a run's stage and test set, None without any; "" is the
  last stage, and the test set that comes first."""
  exact = [row for row in schema.of_metric(rows, "em") if not row.get("stress")]
  stages = (stage,) if stage else STAGES
  stage = next((s for s in stages if any(r["stage"] == s for r in exact)), None)
  own = [row for row in exact if row["stage"] == stage]
  name = test_set or (own[0]["test_set"] if own else "")
  own = [row for row in own if row["test_set"] == name]
  proofs = [row for row in rows if row["metric"] == "certified"]
  return summary.lines(own + proofs)[0] if own else None


def farthest(task: str, who: str, rows: list[dict]) -> list[Mark]:
  """Where a run's last stage ends to be right: the longest test length at
  which, as at all shorter ones, the median seed has 99 % exact match.

  Args:
    task, who: as the mark calls them.
    rows: of a run.

  Returns:
    One mark, or none where nothing was measured or nothing is right.
  """
  line = last(rows)
  if line is None:
    return []
  found = None
  for length, cell in line.cells.items():
    if cell.median < RIGHT:
      break
    found = length, cell
  if found is None:
    return []
  length, cell = found
  about = line.group.rows[0]
  trained, unit = about["train_length"], about["unit"]
  seeds = f"{line.seeds}{line.proved}"
  return [
    Mark(task, who, trained, length, 100 * cell.median, unit, seeds, cell.n)
  ]


def figure(ours: list[Mark], published: list[Mark], path, title: str):
  """A bar from training to test length for every mark, by task: ours dark,
  published ones gray, with the factor and the exact match. Returns the path."""
  tasks = dict.fromkeys(mark.task for mark in (*ours, *published))
  lines, ticks, names = 0, [], []
  count = len(ours) + len(published) + len(tasks)
  drawn, axis = plt.subplots(figsize=(9, 0.8 + 0.21 * count))
  for task in tasks:
    for mark in (*ours, *published):
      if mark.task == task:
        color = "C0" if mark in ours else "0.6"
        ends = [mark.trained, mark.tested]
        axis.plot(ends, [-lines] * 2, color=color, linewidth=2)
        axis.plot(*(ends[1], -lines, "o"), color=color, markersize=5)
        _, some, which = mark.seeds.partition("∀")  # "∀ 1 of 3" or "∀"
        proved = f", {some}{which}" if some else ""
        factor = f"{mark.tested / mark.trained:.3g}×"
        text = f"{factor}, {_percent(mark)}{proved}"
        place = {"textcoords": "offset points", "va": "center", "fontsize": 7}
        axis.annotate(text, (ends[1], -lines), (6, 0), **place)
        ticks.append(-lines)
        names.append(f"{task}: {mark.who}")
        lines += 1
    lines += 1
  axis.set_yticks(ticks, names, fontsize=7)
  units = schema.values([mark._asdict() for mark in ours], "unit")
  axis.set_xlabel(f"from the longest in training to the test ({units})")
  far = max(mark.tested for mark in (*ours, *published))
  for color, whose in (("C0", "ours"), ("0.6", "published")):
    axis.plot([], [], "o-", color=color, label=whose)
  about = "∀: seeds proved right at every length"
  axis.legend(title=about, loc="center right", fontsize=8, title_fontsize=8)
  axis.set(xscale="log", xlim=(None, 8 * far), ylim=(1 - lines, 1))
  axis.grid(axis="x", color="0.92")
  axis.set_axisbelow(True)
  axis.set_title(title, fontsize=10)
  return save(drawn, path)


def table(ours: list[Mark], published: list[Mark]) -> list[list[str]]:
  """A line for each mark, by task."""
  grid = [["task", "who", "trained up to", "tested at", "exact match"]]
  grid[0] += ["seeds", "n"]
  tasks = dict.fromkeys(mark.task for mark in (*ours, *published))
  for task in tasks:
    for mark in (*ours, *published):
      if mark.task == task:
        bold = f"**{mark.who}**" if mark in ours else mark.who
        grid.append(
          [task, bold, f"{mark.trained} {mark.unit}", f"{mark.tested}"]
          + [_percent(mark), mark.seeds, f"{mark.n or ''}"]
        )
  return grid


def _percent(mark: Mark) -> str:
  return "not said" if mark.exact is None else f"{mark.exact:.3g} %"
