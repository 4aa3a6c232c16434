"""Figures of exact match (EM) and edit distance: curves against a number, and
squares where there are more methods or test sets than curves can tell apart."""

import itertools
import pathlib
import re
import textwrap
from typing import Any

import numpy as np
import pandas as pd

from lengthgen_jax.drawing import panels, plt, save
from lengthgen_jax.results import summary
from lengthgen_jax.results.records import of_metric
from lengthgen_jax.results.summary import BY_CONFIG, joined

MAX_CURVES = 8  # the most that a reader can tell apart in one figure
# Of the panels; room for a legend or labels.
LAYOUT = {"columns": 3, "margin": 2.5, "sharey": True}
AXES = {"em": "exact match (%)", "edit": "edit distance (% of the output)"}
BAND = (
  "line: median of the seeds, of fewer than three a line each\nband: from the"
  " worst seed (its 95 % lower bound, where it has one) to the best"
)
STYLES = plt.cycler(linestyle=["-", "--", ":"]) * plt.cycler(
  color=[f"C{i}" for i in range(10)]
)


def curves(
  rows: list[dict],
  path: pathlib.Path,
  title: str,
  x: str = "length",
  label: str = "",
) -> pathlib.Path:
  """Draws rows of one metric against length, in a panel for each test set, or
  against another field `x`, which `label` may call otherwise, in a panel for
  each length; returns the path.

  There is a curve for each method and each set of conditions. The values of the
  x axis stand side by side, whatever their distance. A curve against another
  field than the length joins different runs; the last one in `rows` at a point
  counts.
  """
  metric, panel = rows[0]["metric"], "test_set" if x == "length" else "length"
  dependent = () if x == "length" else BY_CONFIG
  table = summary.cells(rows, metric, (x, panel), (), dependent)
  parts = list(table.groupby(panel))
  figure, axes = panels(len(parts), 4.2, 3.0, **LAYOUT)
  figure.supylabel(AXES[metric], fontsize=9)
  names = table.drop_duplicates("curve")
  styles = dict(zip(names.curve, itertools.cycle(STYLES), strict=False))
  places = sorted(set(table[x]))
  for axis, (value, part) in zip(axes, parts, strict=True):
    for index, (number, curve) in enumerate(part.groupby("curve")):
      # Markers within each other show curves that lie on each other.
      size = 4 + 1.5 * (len(names) - index) if len(names) < 9 else 5
      style = {"marker": "o", "markersize": size}
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
        axis.axvline(at, color="0.6", linestyle=":")
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
  figure.legend(*handles, loc="outside right center")
  figure.suptitle(f"{title}\n{BAND}", fontsize=8)
  return save(figure, path)


def _draw_curve(
  axis: plt.Axes, places: list[int], curve: pd.DataFrame, style: dict[str, Any]
) -> None:
  if (curve.seeds < 3).all():
    by_seed = pd.DataFrame(curve["values"].tolist())  # NaN where one is missing
    axis.plot(places, 100 * by_seed, **style)
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
  length, and in the version that tested them; of several runs of one method the
  last one in `rows` counts.
  """
  dependent, shown = (), ()
  if line == "method":
    # The names of curves are then of conditions alone.
    same = {"method": "", "stage": "train", "checkpoint": "last"}
    rows = [row | same | {"model": summary.model_name(row)} for row in rows]
    line, dependent, shown = "model", (*BY_CONFIG, "version"), ("test_set",)
  table = summary.cells(rows, "em", (line, "length"), shown, dependent)
  lines = list(dict.fromkeys(row[line] for row in rows))
  lengths = sorted(set(table.length))
  groups = list(table.groupby("curve"))
  size = 0.6 * len(lengths) + 0.9, 0.3 * len(lines) + 0.4
  figure, axes = panels(len(groups), *size, **LAYOUT)
  for axis, (_, part) in zip(axes, groups, strict=True):
    # Two seeds have no median: the worse one stands for them.
    part = part.assign(shown=part["median"].fillna(part.worst).astype(float))
    grid = part.pivot(index=line, columns="length", values="shown")
    grid = 100 * grid.reindex(index=lines, columns=lengths).to_numpy()
    axis.imshow(grid, vmin=0, vmax=100)
    for (i, j), percent in np.ndenumerate(grid):
      if np.isfinite(percent):
        color = "white" if percent < 60 else "black"
        style = {"ha": "center", "va": "center", "fontsize": 7}
        axis.text(j, i, f"{percent:.3g}", color=color, **style)
    axis.set_xticks(range(len(lengths)), lengths, fontsize=8)
    axis.set_yticks(range(len(lines)), lines, fontsize=8)
    first = part.iloc[0]
    begin = f"test set: {first.test_set}" if line == "model" else ""
    axis.set_title(begin + first["name"])
  figure.supxlabel(f"test length ({joined(table.unit)})", fontsize=9)
  note = "median of the seeds (of two, the worse); white: not measured"
  figure.suptitle(f"{title}: exact match (%)\n{note}", fontsize=9)
  return save(figure, path)


def by_repetition(
  rows: list[dict], path: pathlib.Path, title: str
) -> pathlib.Path:
  """Draws test sets like repeats_2x4 against how often the items occur, here 4,
  in a panel for each length; returns the path."""
  split_rows = []
  for row in rows:
    name, _, times = row["test_set"].rpartition("x")
    split_rows.append(row | {"test_set": name, "times": int(times)})
  label = "how often each of the repeated items occurs"
  return curves(split_rows, path, title, "times", label)


def varied_by(row: dict) -> str:
  """Returns what a row is drawn against: "repetition" if its test set is one
  like repeats_2x4, "test_set" if eval.stress asked for it, else "length"."""
  if re.fullmatch(r"repeats_\d+x\d+", row["test_set"]):
    return "repetition"
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
        path = folder / f"{prefix}{task}_{metric}_by_{kind}.png"
        title = f"{task}, width {joined(row['width'] for row in group)}"
        many = len({row["method"] for row in group}) > MAX_CURVES
        if kind == "repetition":
          paths.append(by_repetition(group, path, title))
        elif metric == "em" and (many or kind == "test_set"):
          line = "method" if kind == "length" else "test_set"
          paths.append(squares(group, path, title, line))
        elif kind == "length" and not many:
          paths.append(curves(group, path, title))
  return paths
