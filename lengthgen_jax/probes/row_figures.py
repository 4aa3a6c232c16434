"""This module draws the rows of probes: curves, tables of ablations and maps of
patching.

The public functions yield Pages, except `draw_comparison`, which saves a PNG.
"""

import math
import pathlib
from collections.abc import Callable, Iterator

import numpy as np

from lengthgen_jax.drawing import Canvas, plt, save
from lengthgen_jax.probes.pages import (
  FigureData,
  Margins,
  Page,
  add_color_bar,
  add_texts,
  grid,
  set_labels,
)
from lengthgen_jax.probes.registry import PROBES
from lengthgen_jax.probes.row_tables import (
  group_by_location,
  location_name,
  panel_titles,
  select_rows,
  values_by_length,
)

LINE_STYLES = ("-", "--", ":", "-.")
COMPARISON_COLUMNS = 4  # panels side by side
# If there are more rows or outputs than this, only those that matter are drawn:
# rows whose patching lowers the accuracy of an output, and such outputs.
MAX_PATCHED = 40


# Curves.


def by_length(data: FigureData) -> Iterator[Page]:
  """Yields a page of probes against length, with a panel for each metric.

  A probe of single heads has a thin curve for each head of one seed; any other
  probe has the median over all seeds and their range. No page is yielded if no
  probe was measured against length.
  """
  rows, seed = data.rows, data.seed
  measured = {row["metric"] for row in rows}
  metrics = [
    metric
    for metric, probe in PROBES.items()
    if probe.by_length and metric in measured
  ]
  styles = _styles([row for row in rows if row["metric"] in metrics])

  def draw(canvas: Canvas) -> None:
    margins = Margins(
      left=0.4, right=1.4, bottom=0.45, top=0.55, between_columns=0.4
    )
    axes = grid(canvas, 1, len(metrics), margins)[0]
    for axis, metric in zip(axes, metrics, strict=True):
      series, title = select_rows(rows, metric), PROBES[metric].title
      if series[0]["head"] is not None:
        series = select_rows(series, metric, seed=seed)
        title += f", seed {seed}"
      for (location, head), curve in group_by_location(series, "head").items():
        linewidth = 1.4 if head is None else 0.9
        style = {"linewidth": linewidth, "clip_on": False} | styles[location]
        _draw_curve(axis, values_by_length(curve), label=location, **style)
      _set_lengths(axis, series)
      axis.set_title(title, fontsize=8)
      if max(row["value"] for row in series) <= 1:
        axis.set_ylim(-0.03, 1.03)
      axis.set_xlabel(f"length ({series[0]['unit']})", fontsize=7)
    _add_legend(axes, styles)
    add_texts(canvas, "probes against length (gray, dotted: longest trained)")

  if metrics:
    yield Page("by_length", (1.7 + 3.0 * len(metrics), 3.1), draw)


def by_step(data: FigureData) -> Iterator[Page]:
  """Yields a page of loss and exact match against step for every training that
  probes watched; of the rounds of finetuning, for the last one alone.

  Below them, each of these probes has a panel with a thin curve for each seed,
  location and head.
  """
  for name, (metrics, rows) in data.logs.items():
    yield _training_page(name, metrics, rows)


def _training_page(name: str, metrics: list[dict], rows: list[dict]) -> Page:
  """Returns the page of one training; see `by_step`.

  Args:
    name: the name of its stage.
    metrics: the rows of its metrics.jsonl, for each seed and chunk of steps.
    rows: the rows of the probes that ran during it.
  """
  probed = list(dict.fromkeys(row["metric"] for row in rows))
  styles = _styles(rows)

  def draw(canvas: Canvas) -> None:
    margins = Margins(0.6, 1.5, 0.45, 0.5, between_rows=0.25)
    axes = grid(canvas, 1 + len(probed), 1, margins)[:, 0]
    em_axis = axes[0].twinx()
    for seed in sorted({row["seed"] for row in metrics}):
      series = [row for row in metrics if row["seed"] == seed]
      steps, losses, em = _columns(series, "step", "loss", "em")
      axes[0].plot(steps, losses, "C3", linewidth=1)
      em_axis.plot(steps, 100 * np.array(em), "C0--", linewidth=1)
    axes[0].set_yscale("log")
    axes[0].set_ylabel("loss (nats, red)", fontsize=7)
    em_axis.set_ylabel("validation EM (%, blue)", fontsize=7)
    for axis, metric in zip(axes[1:], probed, strict=True):
      series = select_rows(rows, metric)
      for (location, *_), curve in group_by_location(
        series, "seed", "head"
      ).items():
        color = styles[location]["color"]
        steps, values = _columns(curve, "step", "value")
        axis.plot(steps, values, color=color, linewidth=0.9, label=location)
      axis.set_ylabel(PROBES[metric].title, fontsize=7)
    for axis in (*axes, em_axis):
      axis.tick_params(labelsize=6)
      axis.set_xlim(0, max(row["step"] for row in metrics))
    _add_legend(axes, styles)
    axes[-1].set_xlabel("step", fontsize=7)
    add_texts(canvas, f"probes during training ({name})")

  return Page(f"training_{name}", (7.5, 2.6 + 2.3 * len(probed)), draw)


def draw_comparison(
  models: dict[str, list[dict]], path: pathlib.Path | str, title: str
) -> pathlib.Path:
  """Draws the probes of several models against length, and returns the path.

  There is a panel for each probe and location, in %. A curve is the median over
  seeds, and the area around it is their range.

  Args:
    models: the probe rows of each model by its name, without those of single
      heads; all values are rates.
    path: the path of the PNG to write.
    title: the title of the figure.
  """
  all_rows = [row for rows in models.values() for row in rows]
  titles, columns = panel_titles(all_rows), COMPARISON_COLUMNS
  panel_rows = math.ceil(len(titles) / columns)
  canvas = plt.figure(figsize=(0.4 + 2.6 * columns, 1.3 + 2.0 * panel_rows))
  margins = Margins(
    left=0.35,
    right=0.1,
    bottom=0.75,
    top=0.55,
    between_columns=0.3,
    between_rows=0.6,
  )
  axes = grid(canvas, panel_rows, columns, margins).ravel()
  for axis, (panel, panel_title) in zip(axes, titles.items(), strict=False):
    for model, rows in models.items():
      values = values_by_length(
        group_by_location(rows, "metric").get(panel, [])
      )
      _draw_curve(axis, values, label=model, linewidth=1.2)
    _set_lengths(axis, all_rows)
    axis.set_ylim(-0.03, 1.03)
    axis.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f}")
    # A title "PROBE, LOCATION" takes two lines.
    axis.set_title(panel_title.replace(", ", ",\n", 1), fontsize=7)
  for axis in axes[len(titles) :]:
    axis.set_axis_off()
  canvas.legend(
    *axes[0].get_legend_handles_labels(),
    ncols=min(len(models), 4),
    fontsize=7,
    frameon=False,
    loc="lower center",
  )
  add_texts(canvas, f"{title} (% against items; dotted: longest trained)")
  return save(canvas, path)


def _draw_curve(
  axis: plt.Axes, values: dict[int, list[float]], **style
) -> None:
  """Draws the median of values by length, and the area of their range."""
  medians, lows, highs = (
    [reduce(series) for series in values.values()]
    for reduce in (np.median, min, max)
  )
  lengths = list(values)
  (line,) = axis.plot(lengths, medians, marker="o", markersize=2.5, **style)
  area = {"color": line.get_color(), "alpha": 0.15, "linewidth": 0}
  axis.fill_between(lengths, lows, highs, **area)


def _set_lengths(axis: plt.Axes, rows: list[dict]) -> None:
  """Sets a tick at each length, and a dotted line at the training length."""
  lengths = sorted({row["length"] for row in rows})
  axis.set_xscale("log")
  axis.set_xticks(lengths, list(map(str, lengths)))
  axis.minorticks_off()
  axis.axvline(rows[0]["train_length"], color="0.6", linestyle=":", linewidth=1)
  axis.tick_params(labelsize=6)


def _styles(rows: list[dict]) -> dict[str, dict]:
  """Returns the color and line style of each location."""
  return {
    location: {
      "color": f"C{index % 10}",
      "linestyle": LINE_STYLES[index % len(LINE_STYLES)],
    }
    for index, location in enumerate(dict.fromkeys(map(location_name, rows)))
  }


def _columns(rows: list[dict], *fields: str) -> list[list]:
  """Returns, for each field, its values in all rows."""
  return [[row[field] for row in rows] for field in fields]


def _add_legend(axes: np.ndarray, styles: dict[str, dict]) -> None:
  """Draws one legend of the locations of all axes, right of the last one."""
  lines = {line.get_label(): line for axis in axes for line in axis.get_lines()}
  locations = [location for location in styles if location in lines]
  axes[-1].legend(
    [lines[location] for location in locations],
    locations,
    bbox_to_anchor=(1.02, 0.5),
    fontsize=6.5,
    frameon=False,
    loc="center left",
  )


# Ablations: exact match without a head or a line.


def without_head(data: FigureData) -> Iterator[Page]:
  """Yields a table of exact match without each head: a row for each layer and
  site, a column for each head."""
  yield from _ablation_page(data, "without_head", location_name, 1.2)


def without_line(data: FigureData) -> Iterator[Page]:
  """Yields a table of exact match without each line of the bias.

  A line is closed in one head, in all heads of its layer, or in all layers of
  its site; if layers share their lines, in one head of every layer, or in all
  heads. A small set that suffices for the intact exact match is framed.
  """

  def label(row: dict) -> str:
    layers = "all layers " if row["layer"] is None else ""
    return f"{layers}{location_name(row)}: {row['line']}"

  yield from _ablation_page(data, "without_line", label, 2.8)


def _ablation_page(
  data: FigureData,
  metric: str,
  label_of: Callable[[dict], str],
  label_width: float,
) -> Iterator[Page]:
  """Yields a table of exact match by ablated part (row) and head (column), if
  the metric and "intact" were measured.

  `label_of` returns the label of the table row that a probe row belongs to;
  labels are `label_width` inches wide.
  """
  rows, seed = data.rows, data.seed
  intact = select_rows(rows, "intact", seed=seed)
  ablated = select_rows(rows, metric, seed=seed)
  if not (intact and ablated):
    return
  framed = select_rows(rows, "enough_lines", seed=seed)
  framed = framed if metric == "without_line" else []
  labels = list(dict.fromkeys(map(label_of, ablated)))
  labels.sort(key=lambda label: not label.startswith("layer"))
  heads = sorted({row["head"] for row in ablated} - {None})
  if any(row["head"] is None for row in ablated):
    heads.append(None)  # the column of all heads at once
  cell_of = lambda row: (labels.index(label_of(row)), heads.index(row["head"]))
  values = np.full((len(labels), len(heads)), np.nan)
  for row in ablated:
    values[cell_of(row)] = row["value"]

  def draw(canvas: Canvas) -> None:
    ((axis,),) = grid(canvas, 1, 1, Margins(label_width, 0.2, 0.5, 0.5))
    colors = {"cmap": "RdYlGn", "vmin": 0, "vmax": 1, "alpha": 0.75}
    axis.imshow(values, aspect="auto", **colors)
    for (row_index, column), value in np.ndenumerate(values):
      if np.isfinite(value):
        style = {"fontsize": 6, "ha": "center", "va": "center"}
        axis.text(column, row_index, f"{100 * value:.0f}", **style)
    head_labels = ["all" if head is None else str(head) for head in heads]
    set_labels(axis, head_labels, labels, fontsize=6)
    for row_index, column in map(cell_of, framed):
      style = {"fill": False, "edgecolor": "black", "linewidth": 1.3}
      corner = column - 0.47, row_index - 0.45
      axis.add_patch(plt.Rectangle(corner, 0.94, 0.9, **style))
    legend = f" (framed: {len(framed)} lines that are enough together)"
    axis.set_xlabel("head" + (legend if framed else ""), fontsize=7)
    title = f"EM (%) {metric.replace('_', ' each ')}{_intact_text(intact[0])}"
    add_texts(canvas, title)

  width = label_width + 0.3 + 0.42 * max(len(heads), 6)
  yield Page(metric, (width, 1.1 + 0.22 * len(labels)), draw)


def _intact_text(intact: dict) -> str:
  """Returns the part of a title that names the intact model and its EM."""
  return (
    f", {intact['length']} {intact['unit']}"
    f" (intact {100 * intact['value']:.1f}), seed {intact['seed']}"
  )


def patched(data: FigureData) -> Iterator[Page]:
  """Yields a page with a map for each residual that was patched: how often each
  output (column) is right when the residual of a row or of a source token is
  another input's."""
  rows, seed, labels = data.rows, data.seed, data.labels
  intact = select_rows(rows, "intact", seed=seed)
  patched_rows = select_rows(rows, "patched", seed=seed)
  if not (intact and patched_rows):
    return
  maps = {
    key: np.array([row["by_position"] for row in residual_rows])
    for key, residual_rows in group_by_location(patched_rows, "part").items()
  }
  is_lowered = {
    key: values < np.array(intact[0]["by_position"])
    for key, values in maps.items()
  }
  outputs = _drawn_columns(np.concatenate(list(is_lowered.values())))
  positions = {
    key: _drawn_columns(lowered.T) for key, lowered in is_lowered.items()
  }

  def draw(canvas: Canvas) -> None:
    margins = Margins(0.4, 0.65, 0.45, 0.65, 0.5)
    axes = grid(canvas, 1, len(maps), margins)[0]
    for axis, (key, values) in zip(axes, maps.items(), strict=True):
      location, part = key
      values = values[positions[key]][:, outputs]
      # A map may have no row or no column; matplotlib warns without an extent.
      num_rows, num_columns = np.maximum(values.shape, 1)
      extent = -0.5, num_columns - 0.5, num_rows - 0.5, -0.5
      style = {"cmap": "Blues_r", "vmin": 0, "vmax": 1, "aspect": "auto"}
      image = axis.imshow(values, extent=extent, **style)
      axis.set_title(location, fontsize=7, pad=3)
      row_labels = labels["source" if part == "source" else "inputs"]
      set_labels(
        axis,
        [labels["outputs"][output] for output in outputs],
        [row_labels[position] for position in positions[key]],
        fontsize=4.5,
        rotation=90,
      )
    add_color_bar(canvas, image, margins, "share still right")
    text = "how often outputs are right with one residual of another input"
    title = text + _intact_text(intact[0])
    add_texts(canvas, title, "output", "row or source token that is patched")

  width = max(0.1 * len(outputs), 1.2)
  height = max(1.4, *(0.1 * len(rows) for rows in positions.values()))
  yield Page("patched", (0.9 + len(maps) * (width + 0.5), 0.95 + height), draw)


def _drawn_columns(is_lowered: np.ndarray) -> np.ndarray:
  """Returns the indices of all columns or, if there are more than MAX_PATCHED,
  of those with a lowered value."""
  columns = np.arange(is_lowered.shape[1])
  if len(columns) <= MAX_PATCHED:
    return columns
  return columns[is_lowered.any(axis=0)]
