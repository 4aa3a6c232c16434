"""Figures of exact match and edit distance, drawn from result rows.

`by_test_set` and `by_method` draw grids of colored squares; `by_length`,
`by_times` and `by_field` draw curves. `of_run` and `draw` choose the figures of
one run and of one table of runs. `figure` and `table` show how far tests go
beyond the training lengths, in our runs and in published ones.
"""

import functools
import pathlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.errors import check
from lengthgen_jax.results import schema, summary

NOTHING = "a figure with nothing to show: there are no rows for it"


def by_test_set(
  rows: list[dict], path: pathlib.Path, title: str, metric: str = "em"
) -> pathlib.Path:
  """Draws EM on every test set at every length and returns the figure's path.

  Squares show the median of the seeds; there is a panel per method and
  conditions.
  """
  rows = schema.of_metric(rows, metric)
  groups = schema.groups(rows, along=("test_set", "length"))
  return _draw(rows, groups, path, title, "test_set")


def by_method(rows: list[dict], path: pathlib.Path, title: str) -> pathlib.Path:
  """Draws EM of every method at every length and returns the figure's path.

  Squares show the median of the seeds; there is a panel per test set and
  conditions. It is for more methods than curves could tell apart.
  """
  rows = schema.of_metric(rows, "em")
  along, free = ("method", "length"), ("bits", *schema.BY_CONFIG)
  groups = schema.groups(rows, along, free)
  groups = [g._replace(name=g.rows[0]["test_set"]) for g in groups]
  return _draw(rows, groups, path, title, "method")


def _draw(
  rows: list[dict],
  groups: list[schema.Group],
  path: pathlib.Path,
  title: str,
  by: str,
) -> pathlib.Path:
  """Draws a panel for each group: values of the field `by` against lengths.

  Returns the path of the figure.
  """
  check(rows, NOTHING)
  labels = list(dict.fromkeys(row[by] for row in rows))
  lengths = sorted({row["length"] for row in rows})
  columns = min(len(groups), 4)
  panel_rows = -(-len(groups) // columns)
  size = (
    1.5 + (0.6 * len(lengths) + 0.9) * columns,
    1 + 0.3 * len(labels) * panel_rows,
  )
  figure, axes = plt.subplots(
    panel_rows, columns, figsize=size, squeeze=False, sharey=True
  )
  for axis in axes.flat[len(groups) :]:
    axis.set_visible(False)
  for axis, group in zip(axes.flat, groups, strict=False):
    percents_by_place = {}
    for row in group.rows:
      place = labels.index(row[by]), lengths.index(row["length"])
      percents_by_place.setdefault(place, []).append(100 * row["value"])
    cells = np.full((len(labels), len(lengths)), np.nan)
    for place, percents in percents_by_place.items():
      cells[place] = np.median(percents)
      style = {"ha": "center", "va": "center", "fontsize": 7}
      color = "white" if cells[place] < 60 else "black"
      axis.text(*place[::-1], f"{cells[place]:.3g}", color=color, **style)
    axis.imshow(cells, vmin=0, vmax=100, aspect="auto")
    axis.set_xticks(range(len(lengths)), lengths, fontsize=8)
    axis.set_yticks(range(len(labels)), labels, fontsize=8)
    axis.set_title(group.name, fontsize=8)
  figure.supxlabel(f"test length ({schema.values(rows, 'unit')})", fontsize=9)
  figure.suptitle(f"{title}: exact match (%)", fontsize=10)
  figure.tight_layout()
  return save(figure, path)


# The label and the range of the y axis, by metric.
AXES = {
  "em": ("exact match (%)", (-3, 103)),
  "edit": ("edit distance (% of the output)", (0, None)),
}
MARKERS = "os^vDPX*"
STYLES = ("-", "--", ":")  # the next one after every ten colors


def by_length(
  rows: list[dict], path: pathlib.Path, title: str, metric: str = "em"
) -> pathlib.Path:
  """Draws EM or edit distance against test length; returns the figure's path.

  There is a panel per test set. A curve per method and conditions shows the
  median of the seeds, with a band from the worst seed (its lower bound, where
  there is one) to the best.
  """
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
  what: str = "",
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
  for row in schema.of_metric(rows, metric):
    test_set, _, times = row["test_set"].rpartition("x")
    method = f"{row['method']}, {row['length']} {row['unit']}"
    split_rows.append(
      row | {"test_set": test_set, "times": int(times), "method": method}
    )
  groups = schema.groups(split_rows, along=("times",))
  for axis, _, panel in _panels(split_rows, groups, "times", "metric"):
    _dress(axis, [row["times"] for row in panel], TIMES[what][1])
  return _finish(axis.figure, title, path, metric)


def by_field(
  rows: list[dict], path: pathlib.Path, title: str, field: str
) -> pathlib.Path:
  """Draws EM against a config field and returns the figure's path.

  Rows hold the value of the config field under its name. There is a panel per
  test length; a curve per method and conditions shows the median of a run's
  seeds.
  """
  rows = schema.of_metric(rows, "em")
  groups = schema.groups(rows, (field, "length"), ("bits", *schema.BY_CONFIG))
  values = [row[field] for row in rows]
  for axis, length, panel in _panels(rows, groups, field, "length"):
    heading = f"test length: {length} {schema.values(panel, 'unit')}"
    _dress(axis, values, field, heading, 0 < 10 * min(values) < max(values))
  return _finish(axis.figure, title, path, "em")


def _panels(
  rows: list[dict], groups: list[schema.Group], x_field: str, by: str
) -> Iterator[tuple]:
  """Draws a panel for each value of `by`: all groups against `x_field`.

  Args:
    rows: of one metric, at least one.
    groups: the groups of these rows; each has one color in all panels.
    x_field: the field of rows that the x axis shows.
    by: the field of rows that has one value per panel.

  Yields:
    (axes of the panel, value of `by`, rows of the panel).
  """
  check(rows, NOTHING)
  values = sorted({row[by] for row in rows})
  size = (1.5 + 4.2 * len(values), 3.8)
  _, axes = plt.subplots(1, len(values), figsize=size, squeeze=False)
  for axis, value in zip(axes[0], values, strict=True):
    for i, group in enumerate(groups):
      _line(axis, i, group, x_field, [r for r in group.rows if r[by] == value])
    yield axis, value, [row for row in rows if row[by] == value]


def _line(
  axis: plt.Axes, i: int, group: schema.Group, x_field: str, rows: list[dict]
) -> None:
  """Draws rows of the i-th group, and the range of seeds, against a field."""
  x_values = sorted({row[x_field] for row in rows})
  rows_by_x = [
    [row for row in rows if row[x_field] == x_value] for x_value in x_values
  ]
  median = [
    100 * np.median([row["value"] for row in seeds]) for seeds in rows_by_x
  ]
  low = [100 * min(map(_worst, seeds)) for seeds in rows_by_x]
  high = [100 * max(row["value"] for row in seeds) for seeds in rows_by_x]
  seeds_note = f" ({group.seeds} seeds)" if " of " in group.seeds else ""
  color = f"C{i % 10}"
  axis.plot(
    x_values,
    median,
    color=color,
    linestyle=STYLES[i // 10 % len(STYLES)],
    marker=MARKERS[i % len(MARKERS)],
    markersize=5,
    label=group.name + seeds_note,
    clip_on=False,
  )
  axis.fill_between(x_values, low, high, color=color, alpha=0.15, linewidth=0)


def _mark(axis: plt.Axes, x: float, text: str) -> None:
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


def _worst(row: dict) -> float:
  """Returns the lower bound of a row, or its value where it has no bound."""
  bound = row["lower_bound"]
  return row["value"] if bound is None else bound


def _dress(
  axis: plt.Axes, values: list, label: str, heading: str = "", log: bool = True
) -> None:
  """Labels a panel and its x axis, which has ticks at the values only."""
  if log:
    axis.set_xscale("log")
  values = sorted(set(values))
  positions = np.log(values) if log else np.array(values)
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


# Names of figures, by the metric and by what it is drawn against.
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
  """Returns what a row is drawn against, a key of DRAW."""
  for kind, (start, _) in TIMES.items():
    if row["test_set"].startswith(start):
      return kind
  return "test_set" if row.get("stress") else "length"


def of_run(
  rows: list[dict],
  folder: str | pathlib.Path,
  title: str,
  names: dict[tuple[str, str], str] = NAMES,
) -> list[pathlib.Path]:
  """Draws EM and edit distance of a run, as far as they were measured.

  There is a figure by length, by repetition, by multiplicity and one of hard
  inputs.

  Args:
    rows: rows of one task.
    folder: where the figures are written.
    title: title of every figure.
    names: names of the files, as in NAMES.

  Returns:
    Paths of the figures for which there were rows.
  """
  paths = []
  for (metric, kind), name in names.items():
    selected = [r for r in schema.of_metric(rows, metric) if against(r) == kind]
    if selected:
      path = pathlib.Path(folder) / f"{name}.png"
      paths.append(DRAW[kind](selected, path, title, metric))
  return paths


LINES = 8  # the most curves that a reader can tell apart in one figure


def draw(
  name: str,
  entries: list,
  archived: Mapping[str, tuple[dict, list[dict]]],
  folder: str | pathlib.Path,
  along: str = "",
) -> list[tuple[str, pathlib.Path]]:
  """Draws the figures of a table: by length, on hard inputs, against a field.

  Each task and width has its own figures.

  Args:
    name: name of the table, with which the names of the files begin.
    entries: rows of the table, each a markdown_report.Entry.
    archived: (head, rows) by run, as in `markdown_report.page`.
    folder: where the figures are written.
    along: the config field that `by_field` draws, "" if there is none.

  Returns:
    (caption, path of the PNG) of each figure.
  """
  rows_by_size = {}
  for entry in entries:
    for row in archived.get(entry.run, ({}, []))[1]:
      if row["stage"] == entry.stage and row["metric"] in ("em", "edit"):
        fields = {"method": entry.model, "stage": "train", "run": entry.run}
        fields |= {along: entry.value} if entry.value is not None else {}
        size = row["task"], row["width"]
        rows_by_size.setdefault(size, []).append(row | fields)
  paths = []
  for (task, width), rows in rows_by_size.items():
    prefix = f"{name}_{task}_{width}"
    title = f"{task}, width={width}"
    names = {
      (metric, kind): f"{prefix}_{metric}_by_{kind}" for metric, kind in NAMES
    }
    if len({row["method"] for row in rows}) > LINES:
      del names["em", "length"], names["edit", "length"]
      usual_rows = [row for row in rows if against(row) == "length"]
      path = pathlib.Path(folder) / f"{prefix}_em_by_model.png"
      paths.append(by_method(usual_rows, path, title))
    paths += of_run(rows, folder, title, names)
    exact_rows = [
      row | {"method": row["method"].partition(f", {short(along)}=")[0]}
      for row in schema.of_metric(rows, "em")
      if along in row and against(row) == "length"
    ]
    if len({row[along] for row in exact_rows}) > 1:
      path = pathlib.Path(folder) / f"{prefix}_by_{along}.png"
      paths.append(by_field(exact_rows, path, title, along))
  return [(path.stem.replace("_", " "), path) for path in paths]


def short(field: str) -> str:
  """Returns the name of a config field without its section."""
  return field.rpartition(".")[2]


# Stages from the last to the first: the last one that a run has counts.
STAGES = ("certify", "retrain", "train")
RIGHT = 0.99  # the least median exact match of a length that counts as right


class Mark(NamedTuple):
  """A length to which something was trained, and one at which it was tested.

  Attributes:
    task: the task; marks of one task stand together.
    who: the method and where it is from.
    trained, tested: the longest training length, and the test length.
    exact: exact match at the test length, in %; None if it is not published.
    unit: what lengths count.
    seeds: how many seeds, as text; "" if it is not published.
    n: samples per seed at the test length, 0 if unknown.
  """

  task: str
  who: str
  trained: int
  tested: int
  exact: float | None
  unit: str
  seeds: str = ""
  n: int = 0


def last(
  rows: list[dict], stage: str = "", test_set: str = ""
) -> summary.Line | None:
  """Returns the line of a run's stage and test set, None if there is none.

  Args:
    rows: rows of one run.
    stage: the stage, "" for the last one that has exact match.
    test_set: the test set, "" for the one that comes first.
  """
  exact_rows = [
    row for row in schema.of_metric(rows, "em") if not row.get("stress")
  ]
  stages = (stage,) if stage else STAGES
  stage = next(
    (s for s in stages if any(r["stage"] == s for r in exact_rows)), None
  )
  selected = [row for row in exact_rows if row["stage"] == stage]
  name = test_set or (selected[0]["test_set"] if selected else "")
  selected = [row for row in selected if row["test_set"] == name]
  proofs = [row for row in rows if row["metric"] == "certified"]
  return summary.lines(selected + proofs)[0] if selected else None


def farthest(task: str, who: str, rows: list[dict]) -> list[Mark]:
  """Returns the mark of the longest length that a run's last stage gets right.

  A length counts as right if the median seed has at least 99 % exact match
  there and at all shorter test lengths.

  Args:
    task, who: fields of the mark.
    rows: rows of one run.

  Returns:
    One mark, or none where nothing was measured or nothing is right.
  """
  line = last(rows)
  if line is None:
    return []
  reached = None
  for length, cell in line.cells.items():
    if cell.median < RIGHT:
      break
    reached = length, cell
  if reached is None:
    return []
  length, cell = reached
  first_row = line.group.rows[0]
  trained, unit = first_row["train_length"], first_row["unit"]
  seeds = f"{line.seeds}{line.proved}"
  return [
    Mark(task, who, trained, length, 100 * cell.median, unit, seeds, cell.n)
  ]


def figure(
  ours: list[Mark], published: list[Mark], path: pathlib.Path, title: str
) -> pathlib.Path:
  """Draws a bar from training to test length for every mark, by task.

  Our bars are blue, published ones gray; beside each stand the factor between
  the lengths and the exact match. Returns the path of the figure.
  """
  tasks = dict.fromkeys(mark.task for mark in (*ours, *published))
  y, ticks, tick_labels = 0, [], []
  count = len(ours) + len(published) + len(tasks)
  canvas, axis = plt.subplots(figsize=(9, 0.8 + 0.21 * count))
  for task in tasks:
    for mark in (*ours, *published):
      if mark.task == task:
        color = "C0" if mark in ours else "0.6"
        ends = [mark.trained, mark.tested]
        axis.plot(ends, [-y] * 2, color=color, linewidth=2)
        axis.plot(*(ends[1], -y, "o"), color=color, markersize=5)
        _, sign, share = mark.seeds.partition("∀")  # "∀ 1 of 3" or "∀"
        proved = f", {sign}{share}" if sign else ""
        factor = f"{mark.tested / mark.trained:.3g}×"
        text = f"{factor}, {_percent(mark)}{proved}"
        text_style = {
          "textcoords": "offset points",
          "va": "center",
          "fontsize": 7,
        }
        axis.annotate(text, (ends[1], -y), (6, 0), **text_style)
        ticks.append(-y)
        tick_labels.append(f"{task}: {mark.who}")
        y += 1
    y += 1
  axis.set_yticks(ticks, tick_labels, fontsize=7)
  units = schema.values([mark._asdict() for mark in ours], "unit")
  axis.set_xlabel(f"from the longest in training to the test ({units})")
  longest_test = max(mark.tested for mark in (*ours, *published))
  for color, label in (("C0", "ours"), ("0.6", "published")):
    axis.plot([], [], "o-", color=color, label=label)
  legend_title = "∀: seeds proved right at every length"
  axis.legend(
    title=legend_title, loc="center right", fontsize=8, title_fontsize=8
  )
  axis.set(xscale="log", xlim=(None, 8 * longest_test), ylim=(1 - y, 1))
  axis.grid(axis="x", color="0.92")
  axis.set_axisbelow(True)
  axis.set_title(title, fontsize=10)
  return save(canvas, path)


def table(ours: list[Mark], published: list[Mark]) -> list[list[str]]:
  """Returns a head and a line of cells for each mark, by task."""
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
  """Returns the exact match of a mark as text."""
  return "not said" if mark.exact is None else f"{mark.exact:.3g} %"
