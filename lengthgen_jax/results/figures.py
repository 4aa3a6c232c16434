"""Figures of exact match and edit distance, drawn from result rows.

`by_test_set` and `by_method` draw grids of colored squares; `by_length`,
`by_times` and `by_field` draw curves. `draw_run` and `draw_table` choose the
figures of one run and of one table of runs.
"""

import functools
import pathlib
from collections.abc import Iterator

import numpy as np

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.errors import check
from lengthgen_jax.results.records import of_metric
from lengthgen_jax.results.summary import BY_CONFIG, Line, joined_values, pool

EMPTY = "a figure with nothing to show: there are no rows for it"
# The label and the range of the y axis, by metric.
AXES = {
  "em": ("exact match (%)", (-3, 103)),
  "edit": ("edit distance (% of the output)", (0, None)),
}
MARKERS = "os^vDPX*"
STYLES = ("-", "--", ":")  # the next one after every ten colors


def by_test_set(
  rows: list[dict], path: pathlib.Path, title: str, metric: str = "em"
) -> pathlib.Path:
  """Draws EM on every test set at every length and returns the figure's path.

  Squares show the median of the seeds; there is a panel per method and
  conditions.
  """
  rows = of_metric(rows, metric)
  lines = pool(rows, along=("test_set", "length"))
  return _draw_squares(lines, path, title, "test_set")


def by_method(rows: list[dict], path: pathlib.Path, title: str) -> pathlib.Path:
  """Draws EM of every method at every length and returns the figure's path.

  Squares show the median of the seeds; there is a panel per test set and
  conditions. It is for more methods than curves could tell apart.
  """
  free = ("bits", *BY_CONFIG)
  lines = pool(of_metric(rows, "em"), ("method", "length"), free)
  lines = [line._replace(name=line.rows[0]["test_set"]) for line in lines]
  return _draw_squares(lines, path, title, "method")


def _draw_squares(
  lines: list[Line], path: pathlib.Path, title: str, field: str
) -> pathlib.Path:
  """Draws a panel for each line: values of `field` against lengths."""
  check(lines, EMPTY)
  rows = [row for line in lines for row in line.rows]
  labels = list(dict.fromkeys(row[field] for row in rows))
  lengths = sorted({row["length"] for row in rows})
  columns = min(len(lines), 4)
  panel_rows = -(-len(lines) // columns)
  figure, axes = plt.subplots(
    panel_rows,
    columns,
    figsize=(
      1.5 + (0.6 * len(lengths) + 0.9) * columns,
      1 + 0.3 * len(labels) * panel_rows,
    ),
    squeeze=False,
    sharey=True,
    layout="constrained",
  )
  for axis in axes.flat[len(lines) :]:
    axis.set_visible(False)
  for axis, line in zip(axes.flat, lines, strict=False):
    percents = np.full((len(labels), len(lengths)), np.nan)
    for i, label in enumerate(labels):
      label_rows = [row for row in line.rows if row[field] == label]
      for length, cell in line._replace(rows=label_rows).cells.items():
        j, percent = lengths.index(length), 100 * cell.median
        percents[i, j] = percent
        color = "white" if percent < 60 else "black"
        style = {"ha": "center", "va": "center", "fontsize": 7}
        axis.text(j, i, f"{percent:.3g}", color=color, **style)
    axis.imshow(percents, vmin=0, vmax=100, aspect="auto")
    axis.set_xticks(range(len(lengths)), lengths, fontsize=8)
    axis.set_yticks(range(len(labels)), labels, fontsize=8)
    axis.set_title(line.name, fontsize=8)
  figure.supxlabel(f"test length ({joined_values(rows, 'unit')})", fontsize=9)
  figure.suptitle(f"{title}: exact match (%)", fontsize=10)
  return save(figure, path)


def by_length(
  rows: list[dict], path: pathlib.Path, title: str, metric: str = "em"
) -> pathlib.Path:
  """Draws EM or edit distance against test length; returns the figure's path.

  There is a panel per test set. A curve per method and conditions shows the
  median of the seeds, with a band from the worst seed (its lower bound, where
  there is one) to the best.
  """
  lines = pool(of_metric(rows, metric), along=("test_set", "length"))
  for axis, test_set, panel in _draw_curves(lines, "length", "test_set"):
    for train_length in {row["train_length"] for row in panel}:
      _mark_length(axis, train_length, "longest trained")
    lengths = [row["length"] for row in panel]
    label = f"test length ({joined_values(panel, 'unit')})"
    _label_x(axis, lengths, label, f"test set: {test_set}")
  return _finish(axis.figure, title, path, metric)


# Test sets that are drawn against the number R at the end of their names: the
# beginning of those names, and the label of the x axis.
TIMES = {
  "repetition": ("repeats_", "how often each of the repeated items occurs"),
  "multiplicity": ("multiplicity_x", "how often every value occurs"),
}


def by_times(
  rows: list[dict],
  path: pathlib.Path,
  title: str,
  metric: str = "em",
  what: str = "repetition",
) -> pathlib.Path:
  """Draws EM or edit distance against how often items occur.

  A curve per method, conditions and length shows the median of the seeds.

  Args:
    rows: rows of test sets `repeats_KxR` or `multiplicity_xR`.
    path: where the figure is written.
    title: title of the figure.
    metric: "em" or "edit".
    what: a key of TIMES, which says what R counts.

  Returns:
    The path of the figure.
  """
  split_rows = []
  for row in of_metric(rows, metric):
    test_set, _, times = row["test_set"].rpartition("x")
    method = f"{row['method']}, {row['length']} {row['unit']}"
    fields = {"test_set": test_set, "times": int(times), "method": method}
    split_rows.append(row | fields)
  lines = pool(split_rows, along=("times",))
  for axis, _, panel in _draw_curves(lines, "times", "metric"):
    _label_x(axis, [row["times"] for row in panel], TIMES[what][1])
  return _finish(axis.figure, title, path, metric)


def by_field(
  rows: list[dict], path: pathlib.Path, title: str, field: str
) -> pathlib.Path:
  """Draws EM against a config field and returns the figure's path.

  Rows hold the value of the config field under its name. There is a panel per
  test length; a curve per method and conditions shows the median of a run's
  seeds.
  """
  rows = of_metric(rows, "em")
  lines = pool(rows, (field, "length"), ("bits", *BY_CONFIG))
  values = [row[field] for row in rows]
  for axis, length, panel in _draw_curves(lines, field, "length"):
    heading = f"test length: {length} {joined_values(panel, 'unit')}"
    is_log = 0 < 10 * min(values) < max(values)
    _label_x(axis, values, field, heading, is_log)
  return _finish(axis.figure, title, path, "em")


def _draw_curves(
  lines: list[Line], x_field: str, panel_field: str
) -> Iterator[tuple]:
  """Draws lines against `x_field`, in a panel per value of `panel_field`.

  Yields:
    (axes of the panel, value of `panel_field`, rows of the panel).
  """
  check(lines, EMPTY)
  rows = [row for line in lines for row in line.rows]
  panel_values = sorted({row[panel_field] for row in rows})
  _, axes = plt.subplots(
    1,
    len(panel_values),
    figsize=(1.5 + 4.2 * len(panel_values), 3.8),
    squeeze=False,
  )
  for axis, value in zip(axes[0], panel_values, strict=True):
    panel_rows = [row for row in rows if row[panel_field] == value]
    for i, line in enumerate(lines):
      line_rows = [row for row in line.rows if row[panel_field] == value]
      _draw_curve(axis, i, line._replace(rows=line_rows), line, x_field)
    yield axis, value, panel_rows


def _draw_curve(
  axis: plt.Axes, i: int, part: Line, line: Line, x_field: str
) -> None:
  """Draws a panel's part of the i-th line, with the range of seeds."""
  cells = part.cells_by(x_field)
  lows = [c.worst if c.bound is None else c.bound for c in cells.values()]
  color = f"C{i % 10}"
  count = f" ({line.seed_count} seeds)" if " of " in line.seed_count else ""
  axis.plot(
    list(cells),
    [100 * cell.median for cell in cells.values()],
    color=color,
    linestyle=STYLES[i // 10 % len(STYLES)],
    marker=MARKERS[i % len(MARKERS)],
    markersize=5,
    label=line.name + count,
    clip_on=False,
  )
  axis.fill_between(
    list(cells),
    [100 * low for low in lows],
    [100 * cell.best for cell in cells.values()],
    color=color,
    alpha=0.15,
    linewidth=0,
  )


def _mark_length(axis: plt.Axes, x: float, text: str) -> None:
  """Draws a dotted vertical line at `x` with a text beside it."""
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
    tick_labels.append(f"{value:g}" if has_room else "")
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
  figure.axes[0].set_ylabel(label)
  figure.axes[-1].legend(
    fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False
  )
  figure.suptitle(title, fontsize=11)
  return save(figure, path)


# How a metric is drawn against what test sets vary.
DRAW = {
  ("em", "length"): by_length,
  ("em", "repetition"): functools.partial(by_times, what="repetition"),
  ("em", "multiplicity"): functools.partial(by_times, what="multiplicity"),
  ("em", "test_set"): by_test_set,
  ("edit", "length"): functools.partial(by_length, metric="edit"),
  ("edit", "repetition"): functools.partial(
    by_times, metric="edit", what="repetition"
  ),
  ("edit", "multiplicity"): functools.partial(
    by_times, metric="edit", what="multiplicity"
  ),
}


def varied_by(row: dict) -> str:
  """Returns what a row is drawn against: the second word of a key of DRAW."""
  for kind, (start, _) in TIMES.items():
    if row["test_set"].startswith(start):
      return kind
  return "test_set" if row.get("stress") else "length"


MAX_CURVES = 8  # the most that a reader can tell apart in one figure


def draw_run(
  rows: list[dict], folder: pathlib.Path, title: str, prefix: str = ""
) -> list[pathlib.Path]:
  """Draws the figures for which there are rows, and returns their paths.

  Where there are more methods than curves could tell apart, `by_method` stands
  in place of the curves by length.

  Args:
    rows: rows of one task.
    folder: where the figures are written.
    title: title of every figure.
    prefix: what names of files begin with.
  """
  drawings = dict(DRAW)
  if len({row["method"] for row in rows}) > MAX_CURVES:
    del drawings["em", "length"], drawings["edit", "length"]
    drawings = {("em", "model"): by_method} | drawings
  paths = []
  for (metric, kind), draw in drawings.items():
    variation = "length" if kind == "model" else kind
    metric_rows = of_metric(rows, metric)
    kind_rows = [row for row in metric_rows if varied_by(row) == variation]
    if kind_rows:
      path = folder / f"{prefix}{metric}_by_{kind}.png"
      paths.append(draw(kind_rows, path, title))
  return paths


def draw_table(
  name: str, rows: list[dict], folder: pathlib.Path, along: str = ""
) -> list[tuple[str, pathlib.Path]]:
  """Draws the figures of a table: by length, on hard inputs, against a field.

  Each task and width has its own figures.

  Args:
    name: name of the table, with which the names of the files begin.
    rows: rows of any runs, under the table's names of the methods.
    folder: where the figures are written.
    along: the config field that `by_field` draws; rows hold its value under its
      name. "" if there is none.

  Returns:
    (caption, path of the PNG) of each figure.
  """
  rows_by_size = {}
  for row in of_metric(rows, "em") + of_metric(rows, "edit"):
    rows_by_size.setdefault((row["task"], row["width"]), []).append(row)
  paths, field = [], along.rpartition(".")[2]
  for (task, width), size_rows in rows_by_size.items():
    prefix, title = f"{name}_{task}_{width}_", f"{task}, width={width}"
    paths += draw_run(size_rows, folder, title, prefix)
    field_rows = [
      row | {"method": row["method"].partition(f", {field}=")[0]}
      for row in of_metric(size_rows, "em")
      if along in row and varied_by(row) == "length"
    ]
    if len({row[along] for row in field_rows}) > 1:
      path = folder / f"{prefix}by_{along}.png"
      paths.append(by_field(field_rows, path, title, along))
  return [(path.stem.replace("_", " "), path) for path in paths]
