"""Figures of result rows."""

import functools
import pathlib

import numpy as np

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.errors import check
from lengthgen_jax.results import schema, squares

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
  check(rows, squares.NOTHING)
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
  "test_set": squares.by_test_set,
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
