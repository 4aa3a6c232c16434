"""Figures of exact match (EM) and edit distance: curves against a number, and
squares where there are more methods or test sets than curves can tell apart."""

import itertools
import math
import pathlib
import re
import textwrap
from typing import Any

import numpy as np
import pandas as pd

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.results import summary
from lengthgen_jax.results.records import of_metric
from lengthgen_jax.results.summary import BY_CONFIG, joined

MAX_CURVES = 8  # the most that a reader can tell apart in one figure
COLUMNS = 3  # panels side by side
AXES = {"em": "exact match (%)", "edit": "edit distance (% of the output)"}
BAND = (
  "line: median of the seeds, of fewer than three a line each\nband: from the"
  " worst seed (its 95 % lower bound, where it has one) to the best"
)
STYLES = plt.cycler(linestyle=["-", "--", ":"]) * plt.cycler(
  color=[f"C{i}" for i in range(10)]
)
# Test sets that are drawn against the number at the end of their names, like 4
# in repeats_2x4: {what they are called: the label of the x axis}.
TIMES = {
  r"(repeats_\d+)x(\d+)": "how often each of the repeated items occurs",
  r"(multiplicity_)x(\d+)": "how often every value occurs",
}


def curves(
  rows: list[dict],
  path: pathlib.Path,
  title: str,
  x: str = "length",
  panel: str = "test_set",
  label: str = "",
) -> pathlib.Path:
  """Draws rows of one metric, in a panel for each value of a field, and in it a
  curve for each method and each set of conditions; returns the path.

  The values of the x axis stand side by side, whatever their distance. A curve
  against a field `x` other than the length joins different runs; the last one
  in `rows` at a point counts. `label` is that of such an axis.
  """
  metric = rows[0]["metric"]
  dependent = () if x == "length" else BY_CONFIG
  table = summary.cells(rows, metric, (x, panel), (), dependent)
  panels = list(table.groupby(panel))
  figure, axes = _panels(len(panels), 4.2, 3.0)
  figure.supylabel(AXES[metric], fontsize=9)
  names = table.drop_duplicates("curve")
  styles = dict(zip(names.curve, itertools.cycle(STYLES), strict=False))
  places = sorted(set(table[x]))
  for axis, (value, part) in zip(axes, panels, strict=True):
    for index, (number, curve) in enumerate(part.groupby("curve")):
      # Markers within each other show curves that lie on each other.
      size = 4 + 1.5 * (len(names) - index) if len(names) < 9 else 5
      style = {"marker": "o", "fillstyle": "none", "markersize": size}
      at = [places.index(place) for place in sorted(curve[x])]
      _draw_curve(axis, at, curve.sort_values(x), styles[number] | style)
    lengths = joined(part.unit)
    axis.set_title(
      f"test set: {value}"
      if panel == "test_set"
      else f"test {panel}: {value} {lengths}",
      fontsize=10,
    )
    if x == "length":
      label = f"test length ({lengths}; dotted: longest trained)"
      for longest in set(part.train_length):
        at = np.interp(longest, places, range(len(places)))
        axis.axvline(at, color="0.6", linestyle=":", linewidth=1)
    axis.set_xticks(range(len(places)), [f"{place:g}" for place in places])
    axis.set_xlabel(label)
    if metric == "em":
      axis.set_ylim(-3, 103)
  for curve in names.itertuples():
    asked = f" ({curve.asked} seeds)" if " of " in curve.asked else ""
    style: dict[str, Any] = styles[curve.curve]
    name = textwrap.fill(curve.name + asked, 50)
    axes[0].plot([], [], label=name, **style)
  handles = axes[0].get_legend_handles_labels()
  figure.legend(*handles, fontsize=8, loc="outside right center")
  figure.suptitle(f"{title}\n{BAND}", fontsize=8)
  return save(figure, path)


def _draw_curve(
  axis: plt.Axes, places: list[int], curve: pd.DataFrame, style: dict[str, Any]
) -> None:
  if (curve.seeds < 3).all():
    for seed in range(curve.seeds.max()):
      values = [v[seed] if seed < len(v) else np.nan for v in curve["values"]]
      axis.plot(places, 100 * np.array(values), **style)
    return
  axis.plot(places, 100 * curve["median"], **style)
  worst = curve.lower_bound.fillna(curve.worst).astype(float)
  color = {"color": style["color"], "alpha": 0.15, "linewidth": 0}
  axis.fill_between(places, 100 * worst, 100 * curve.best, **color)


def squares(
  rows: list[dict], path: pathlib.Path, title: str, line: str
) -> pathlib.Path:
  """Draws exact match as a heat map with a line for each value of the field
  `line` and a column for each length, in a panel for each set of conditions;
  returns the path.

  Methods may differ in the conditions of `summary.BY_CONFIG`, like the training
  length; of several runs of one method the last one in `rows` counts.
  """
  dependent, shown = (), ()
  if line == "method":
    rows = [row | {"method": summary.model_name(row)} for row in rows]
    dependent, shown = (*BY_CONFIG, "stage", "checkpoint"), ("test_set",)
  table = summary.cells(rows, "em", (line, "length"), shown, dependent)
  lines = list(dict.fromkeys(row[line] for row in rows))
  lengths = sorted(set(table.length))
  groups = list(table.groupby("curve"))
  size = 0.6 * len(lengths) + 0.9, 0.3 * len(lines) + 0.4
  figure, axes = _panels(len(groups), *size)
  for axis, (_, part) in zip(axes, groups, strict=True):
    # Two seeds have no median: the worse one stands for them.
    part = part.assign(shown=part["median"].fillna(part.worst).astype(float))
    grid = part.pivot(index=line, columns="length", values="shown")
    grid = 100 * grid.reindex(index=lines, columns=lengths).to_numpy()
    axis.imshow(grid, vmin=0, vmax=100, aspect="auto")
    for (i, j), percent in np.ndenumerate(grid):
      if np.isfinite(percent):
        color = "white" if percent < 60 else "black"
        style = {"ha": "center", "va": "center", "fontsize": 7}
        axis.text(j, i, f"{percent:.3g}", color=color, **style)
    axis.set_xticks(range(len(lengths)), lengths, fontsize=8)
    axis.set_yticks(range(len(lines)), lines, fontsize=8)
    first = part.iloc[0]
    name = first["name"].removeprefix(str(first.method))
    panel = f"test set: {first.test_set}{name}"
    axis.set_title(panel if line == "method" else first["name"], fontsize=8)
  figure.supxlabel(f"test length ({joined(table.unit)})", fontsize=9)
  note = "median of the seeds (of two, the worse); white: not measured"
  figure.suptitle(f"{title}: exact match (%)\n{note}", fontsize=9)
  return save(figure, path)


def _panels(
  count: int, width: float, height: float
) -> tuple[plt.Figure, list[plt.Axes]]:
  """Returns a new figure and its panels of a size in inches."""
  columns = min(count, COLUMNS)
  num_rows = math.ceil(count / columns)
  figure, axes = plt.subplots(
    num_rows,
    columns,
    figsize=(2.5 + width * columns, 1.0 + height * num_rows),
    squeeze=False,
    sharey=True,
    layout="constrained",
  )
  for axis in axes.flat[count:]:
    axis.remove()
  return figure, figure.axes


def by_times(
  rows: list[dict], path: pathlib.Path, title: str, pattern: str
) -> pathlib.Path:
  """Draws the test sets of one pattern of TIMES against how often items occur,
  in a panel for each length; returns the path."""
  split_rows = []
  for row in rows:
    match = re.fullmatch(pattern, row["test_set"])
    assert match is not None
    name, times = match[1].rstrip("_"), int(match[2])
    split_rows.append(row | {"test_set": name, "times": times})
  return curves(split_rows, path, title, "times", "length", TIMES[pattern])


def varied_by(row: dict) -> str:
  """Returns what a row is drawn against: a pattern of TIMES, "test_set" if
  eval.stress asked for it, else "length"."""
  for pattern in TIMES:
    if re.fullmatch(pattern, row["test_set"]):
      return pattern
  return "test_set" if row.get("stress") else "length"


def draw(
  rows: list[dict], folder: pathlib.Path, prefix: str = ""
) -> list[pathlib.Path]:
  """Draws the figures of each task and returns their paths, that of exact match
  by length first; `prefix` begins the files' names.

  If a task has more than MAX_CURVES methods, squares show them, and edit
  distance by length is not drawn.
  """
  paths = []
  for task in dict.fromkeys(row["task"] for row in rows):
    for metric in AXES:
      kinds = {}
      for row in of_metric(rows, metric):
        if row["task"] == task:
          kinds.setdefault(varied_by(row), []).append(row)
      for kind, group in sorted(kinds.items(), key=lambda x: x[0] != "length"):
        name = "repetition" if kind in TIMES else kind
        if "multiplicity" in kind:
          name = "multiplicity"
        path = folder / f"{prefix}{task}_{metric}_by_{name}.png"
        widths = sorted({row["width"] for row in group})
        title = f"{task}, width {' or '.join(widths)}"
        many = len({row["method"] for row in group}) > MAX_CURVES
        if kind in TIMES:
          paths.append(by_times(group, path, title, kind))
        elif metric == "em" and (many or kind == "test_set"):
          line = "method" if kind == "length" else "test_set"
          paths.append(squares(group, path, title, line))
        elif kind == "length" and not many:
          paths.append(curves(group, path, title))
  return paths


def by_field(
  rows: list[dict], path: pathlib.Path, title: str, field: str
) -> pathlib.Path:
  """Draws exact match against a config field, whose value each row has under
  the field's name, in a panel for each length; returns the path."""
  return curves(rows, path, title, field, "length", field)
