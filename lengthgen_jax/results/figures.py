"""This module draws figures of exact match (EM) and edit distance from result
rows.

`by_test_set` and `by_method` draw heat maps; `by_length`, `by_times` and
`by_field` draw curves. `draw` and `draw_table` choose the figures of runs and
of a table of runs. Rows have the same *conditions* if they agree in all that
can change a result but the seed: results/records.py lists these fields.
"""

import itertools
import math
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.results.records import CONDITIONS, of_metric
from lengthgen_jax.results.summary import (
  BY_CONFIG,
  HEADINGS,
  Curve,
  joined_values,
  pool,
)

MAX_WIDTH = 13  # inches, beyond which panels stand below each other
# The label and the range of the y axis, by metric.
AXES = {
  "em": ("exact match (%)", (-3, 103)),
  "edit": ("edit distance (% of the output)", (0, None)),
}
# Curves differ in color and marker; after ten of them, the line style changes.
STYLES = plt.cycler(linestyle=["-", "--", ":"]) * plt.cycler(
  color=[f"C{i}" for i in range(10)]
)
MARKERS = "os^vDPX*"


def by_test_set(
  rows: list[dict], path: pathlib.Path, title: str
) -> pathlib.Path:
  """Draws the median exact match on every test set at every length as a heat
  map, in a panel for each method and each set of conditions; returns the
  figure's path."""
  rows = of_metric(rows, "em")
  curves = pool(rows, cell_fields=("test_set", "length"))
  return _draw_heat_maps(curves, path, title, "test_set")


def by_method(rows: list[dict], path: pathlib.Path, title: str) -> pathlib.Path:
  """Draws the median EM of every method at every length as a heat map, in a
  panel for each test set and each set of conditions; returns the figure's path.

  Methods may differ in the conditions of `summary.BY_CONFIG`, like the training
  length. Of several runs of one method, the last one in `rows` that was tested
  at a length counts there, even if the others have other seeds. This is for
  more methods than a reader could tell apart as curves.
  """
  dependent = ("bits", *BY_CONFIG)
  curves = pool(of_metric(rows, "em"), ("method", "length"), dependent)
  # A panel is named by its test set and the conditions that differ.
  fields = [
    field
    for field in CONDITIONS
    if field not in ("method", "length", "test_set", *dependent)
    and len({str(curve.rows[0].get(field)) for curve in curves}) > 1
  ]

  def name(curve: Curve) -> str:
    row = curve.rows[0]
    others = [f"{HEADINGS.get(x, x)} {row.get(x)}".strip() for x in fields]
    return ", ".join([f"test set: {row['test_set']}", *others])

  curves = [curve._replace(name=name(curve)) for curve in curves]
  return _draw_heat_maps(curves, path, title, "method")


def _draw_heat_maps(
  curves: list[Curve], path: pathlib.Path, title: str, field: str
) -> pathlib.Path:
  """Draws a heat map of the rows of each curve (a `Curve` is a group of result
  rows under equal conditions), with a line for each value of `field` and a
  column for each length; returns the figure's path."""
  rows = [row for curve in curves for row in curve.rows]
  labels = list(dict.fromkeys(row[field] for row in rows))
  lengths = sorted({row["length"] for row in rows})
  width, height = 0.6 * len(lengths) + 0.9, 0.3 * len(labels) + 0.4
  figure, panels = _panels(len(curves), width, height, layout="constrained")
  for axis, curve in zip(panels, curves, strict=True):
    percents = np.full((len(labels), len(lengths)), np.nan)
    for i, label in enumerate(labels):
      label_rows = [row for row in curve.rows if row[field] == label]
      for length, cell in curve._replace(rows=label_rows).cells.items():
        j, percent = lengths.index(length), 100 * cell.median
        percents[i, j] = percent
        color = "white" if percent < 60 else "black"
        style = {"ha": "center", "va": "center", "fontsize": 7}
        axis.text(j, i, f"{percent:.3g}", color=color, **style)
    axis.imshow(percents, vmin=0, vmax=100, aspect="auto")
    axis.set_xticks(range(len(lengths)), lengths, fontsize=8)
    axis.set_yticks(range(len(labels)), labels, fontsize=8)
    axis.set_title(curve.name, fontsize=8)
  figure.supxlabel(f"test length ({joined_values(rows, 'unit')})", fontsize=9)
  figure.suptitle(f"{title}: exact match (%); white: not measured", fontsize=10)
  return save(figure, path)


def _panels(
  count: int, width: float, height: float, **options: Any
) -> tuple[plt.Figure, list[plt.Axes]]:
  """Returns a new figure and its panels, in as many rows as MAX_WIDTH needs.

  Args:
    count: the number of panels.
    width, height: the size of each, in inches.
    **options: passed to plt.subplots.
  """
  num_rows = math.ceil(count / max(int(MAX_WIDTH / width), 1))
  columns = math.ceil(count / num_rows)
  figure, axes = plt.subplots(
    num_rows,
    columns,
    figsize=(1.5 + width * columns, 0.8 + height * num_rows),
    squeeze=False,
    sharey=True,
    **options,
  )
  for axis in axes.flat[count:]:
    axis.remove()
  return figure, figure.axes


def by_length(rows: list[dict], path: pathlib.Path, title: str) -> pathlib.Path:
  """Draws the metric of the first row against test length, EM or edit distance;
  returns the figure's path.

  There is a panel for each test set, and in it a curve for each method and each
  set of conditions. A curve is the median over seeds; its band reaches from the
  worst seed, or its lower bound if it has one, to the best seed.
  """
  metric = rows[0]["metric"]
  curves = pool(of_metric(rows, metric), cell_fields=("test_set", "length"))
  for axis, test_set, panel_rows in _draw_curves(curves, "length", "test_set"):
    for train_length in {row["train_length"] for row in panel_rows}:
      axis.axvline(train_length, color="0.6", linestyle=":", linewidth=1)
    lengths = [row["length"] for row in panel_rows]
    unit = joined_values(panel_rows, "unit")
    label = f"test length ({unit}; dotted: longest trained)"
    _label_x(axis, lengths, label, f"test set: {test_set}")
  return _finish(axis.figure, title, path, metric)


# Kinds of test sets that are drawn against the number at the end of their
# names, like 4 in repeats_2x4: the pattern of these, and the label of the x
# axis.
TIMES = {
  "repetition": (
    r"repeats_\d+x\d+",
    "how often each of the repeated items occurs",
  ),
  "multiplicity": (r"multiplicity_x\d+", "how often every value occurs"),
}


def by_times(rows: list[dict], path: pathlib.Path, title: str) -> pathlib.Path:
  """Draws EM or edit distance against how often items occur; returns the
  figure's path.

  A curve per method, conditions and length shows the median of the seeds.

  Args:
    rows: rows of one metric, on test sets of one kind of TIMES.
    path: where the figure is written.
    title: title of the figure.
  """
  metric, (_, label) = rows[0]["metric"], TIMES[varied_by(rows[0])]
  split_rows = []
  for row in rows:
    # A test set's name ends in how often items occur, like repeats_2x4.
    test_set, _, times = row["test_set"].rpartition("x")
    method = f"{row['method']}, {row['length']} {row['unit']}"
    fields = {"test_set": test_set, "times": int(times), "method": method}
    split_rows.append(row | fields)
  curves = pool(split_rows, cell_fields=("times",))
  # All rows have one metric, so that there is a single panel.
  for axis, _, panel_rows in _draw_curves(curves, "times", "metric"):
    _label_x(axis, [row["times"] for row in panel_rows], label)
  return _finish(axis.figure, title, path, metric)


def by_field(
  rows: list[dict], path: pathlib.Path, title: str, field: str
) -> pathlib.Path:
  """Draws EM against a config field and returns the figure's path.

  Each row has the value of the config field under the field's name. There is a
  panel for each test length, and in it a curve for each method under the same
  conditions, but for those that may follow from the field (summary.BY_CONFIG).
  A point is the median of one run's seeds: of several runs with the same value
  of the field, the last one in `rows` counts.
  """
  rows = of_metric(rows, "em")
  curves = pool(
    rows, cell_fields=(field, "length"), dependent=("bits", *BY_CONFIG)
  )
  values = [row[field] for row in rows]
  for axis, length, panel_rows in _draw_curves(curves, field, "length"):
    heading = f"test length: {length} {joined_values(panel_rows, 'unit')}"
    is_log = 0 < 10 * min(values) < max(values)  # more than one decade
    _label_x(axis, values, field, heading, is_log)
  return _finish(axis.figure, title, path, "em")


def _draw_curves(
  curves: list[Curve], x_field: str, panel_field: str
) -> Iterator[tuple]:
  """Draws curves against `x_field`, in a panel per value of `panel_field`.

  Yields:
    (axes of the panel, value of `panel_field`, rows of the panel).
  """
  rows = [row for curve in curves for row in curve.rows]
  panel_values = sorted({row[panel_field] for row in rows})
  spacing = {"hspace": 0.45}  # for the labels between rows of panels
  _, panels = _panels(len(panel_values), 4.2, 3.0, gridspec_kw=spacing)
  for axis, value in zip(panels, panel_values, strict=True):
    panel_rows = [row for row in rows if row[panel_field] == value]
    styles = zip(curves, itertools.cycle(STYLES), itertools.cycle(MARKERS))
    for curve, style, marker in styles:
      curve_rows = [row for row in curve.rows if row[panel_field] == value]
      panel_curve = curve._replace(rows=curve_rows)
      label = curve.name
      if " of " in curve.seeds_text:
        label += f" ({curve.seeds_text} seeds)"
      options = style | {"marker": marker, "label": label}
      _draw_curve(axis, panel_curve, x_field, options)
    yield axis, value, panel_rows


def _draw_curve(
  axis: plt.Axes, curve: Curve, x_field: str, style: dict
) -> None:
  """Draws a curve of medians, with a band from the worst seed, or its lower
  bound if it has one, to the best seed."""
  cells = curve.cells_by(x_field)
  worst_edge = [
    cell.worst if cell.lower_bound is None else cell.lower_bound
    for cell in cells.values()
  ]
  best_edge = [cell.best for cell in cells.values()]
  medians = [cell.median for cell in cells.values()]
  percents = lambda fractions: 100 * np.array(fractions)
  axis.plot(
    list(cells),
    percents(medians),
    markersize=5,
    clip_on=False,
    **style,
  )
  axis.fill_between(
    list(cells),
    percents(worst_edge),
    percents(best_edge),
    color=style["color"],
    alpha=0.15,
    linewidth=0,
  )


def _label_x(
  axis: plt.Axes,
  values: list,
  label: str,
  heading: str = "",
  is_log: bool = True,
) -> None:
  """Labels a panel and its x axis, which has ticks at the values only."""
  if is_log:
    axis.set_xscale("log")
  values = sorted(set(values))
  positions = np.log(values) if is_log else np.array(values)
  tick_labels, last_position = [], -np.inf
  for value, position in zip(values, positions, strict=True):
    # Labels closer to each other than this would overlap.
    has_room = position - last_position >= 0.05 * (positions[-1] - positions[0])
    tick_labels.append(str(value) if has_room else "")
    last_position = position if has_room else last_position
  axis.set_xticks(values, tick_labels)
  axis.minorticks_off()
  axis.set_xlabel(label)
  axis.set_title(heading, fontsize=10)


def _finish(
  figure: plt.Figure, title: str, path: pathlib.Path, metric: str
) -> pathlib.Path:
  """Adds title, y axis and legend, writes the figure and returns its path."""
  label, limits = AXES[metric]
  plt.setp(figure.axes, ylim=limits)
  for axis in figure.axes:
    panel = axis.get_subplotspec()
    assert panel is not None
    if panel.is_first_col():
      axis.set_ylabel(label)
    if panel.is_first_row() and panel.is_last_col():
      axis.legend(
        fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False
      )
  figure.suptitle(title, fontsize=11)
  return save(figure, path)


# The function that draws a metric, by (metric, what `varied_by` returns).
DRAW = {
  ("em", "length"): by_length,
  ("em", "repetition"): by_times,
  ("em", "multiplicity"): by_times,
  ("em", "test_set"): by_test_set,
  ("edit", "length"): by_length,
  ("edit", "repetition"): by_times,
  ("edit", "multiplicity"): by_times,
}


def varied_by(row: dict) -> str:
  """Returns what a row is drawn against: the second part of a key of DRAW."""
  for kind, (pattern, _) in TIMES.items():
    if re.fullmatch(pattern, row["test_set"]):
      return kind
  return "test_set" if row.get("stress") else "length"


MAX_CURVES = 8  # the most that a reader can tell apart in one figure


def by_task_and_width(rows: list[dict]) -> dict[tuple[str, str], list[dict]]:
  """Returns the rows of each task and kind of width ("natural" or "fixed"),
  which can share a figure."""
  groups = {}
  for row in rows:
    groups.setdefault((row["task"], row["width"]), []).append(row)
  return groups


def draw(
  rows: list[dict], folder: pathlib.Path, prefix: str = ""
) -> list[pathlib.Path]:
  """Draws the figures of each task and kind of width, and returns their paths.

  They are those of DRAW for which there are rows. If a task and kind of width
  has more than MAX_CURVES methods, EM by length is drawn by `by_method`, and
  edit distance by length is not drawn.

  Args:
    rows: rows of any runs.
    folder: where the figures are written.
    prefix: the beginning of the files' names.
  """
  paths, rows = [], of_metric(rows, "em") + of_metric(rows, "edit")
  for (task, width), group in by_task_and_width(rows).items():
    drawings = dict(DRAW)
    if len({row["method"] for row in group}) > MAX_CURVES:
      del drawings["em", "length"], drawings["edit", "length"]
      drawings = {("em", "model"): by_method} | drawings
    for (metric, kind), draw_kind in drawings.items():
      variation = "length" if kind == "model" else kind
      metric_rows = of_metric(group, metric)
      kind_rows = [row for row in metric_rows if varied_by(row) == variation]
      if kind_rows:
        path = folder / f"{prefix}{task}_{width}_{metric}_by_{kind}.png"
        paths.append(draw_kind(kind_rows, path, f"{task}, width={width}"))
  return paths


def draw_table(
  name: str, rows: list[dict], folder: pathlib.Path, field: str = ""
) -> list[tuple[str, pathlib.Path]]:
  """Draws the figures of a table: those of `draw` and those of `by_field`.

  Args:
    name: the name of the table, with which the files' names begin.
    rows: rows of any runs; their methods have the names that the table shows.
    folder: where the figures are written.
    field: the config field that `by_field` draws, "" for none.

  Returns:
    (caption, path of the PNG) of each figure.
  """
  paths = draw(rows, folder, f"{name}_")
  short_name = field.rpartition(".")[2]
  field_rows = [
    row | {"method": row["method"].partition(f", {short_name}=")[0]}
    for row in of_metric(rows, "em")
    if field in row and varied_by(row) == "length"
  ]
  for (task, width), group in by_task_and_width(field_rows).items():
    if len({row[field] for row in group}) > 1:
      path = folder / f"{name}_{task}_{width}_by_{field}.png"
      paths.append(by_field(group, path, f"{task}, width={width}", field))
  return [(path.stem.replace("_", " "), path) for path in paths]
