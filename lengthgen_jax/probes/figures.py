"""Draws what happens inside models: attention and biases, projections of
residuals, and what probes and certificates measured."""

import itertools
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from lengthgen_jax.coordinates import Coordinates
from lengthgen_jax.drawing import WIDTH, offset_copy, panels, plt, save
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.models.transformer import blocks
from lengthgen_jax.probes.activations import RESIDUALS, Observation
from lengthgen_jax.probes.registry import (
  ALL,
  LINES,
  PROBES,
  SORTING,
  Requirement,
)
from lengthgen_jax.probes.tables import location_name, select_rows, titled
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.tasks.task import Ids, Task

ROWS_PER_PAGE = 12  # of projections
# What the vectors of each basis are.
BASES = {"encoder": "embedding rows", "decoder": "output columns"}
# What some labels of `position_labels` mean.
NAMES = {"a1": "last digit of a", "x1": "first item", "y1": "first output"}
LINE_STYLES, MARKERS = ("-", "--", ":", "-."), "osD^vP*X"
COLORS = {
  "tab:orange": "the row's input",
  "tab:green": "what it must say",
  "tab:purple": "both",
}

Named = Iterator[tuple[str, plt.Figure]]  # figures and the names of their files


class FigureData(NamedTuple):
  """Everything that the figures of a model are drawn from."""

  # the model on each input that is drawn, by the input as typed
  inputs: dict[str, Observation]
  rows: list[dict]  # the rows that all probes measured now, of all seeds
  seed: int  # of the model whose inputs and heads are drawn
  # for each position of the "source" (if there is one), of the decoder's
  # "inputs" and of the scored "outputs"
  labels: dict[str, list[str]]

  def named_inputs(self) -> Iterator[tuple[str, str, Observation]]:
    """Yields (prefix of the figures' names, text, observation)."""
    for number, (text, observation) in enumerate(self.inputs.items(), start=1):
      prefix = f"input{number}_" if len(self.inputs) > 1 else ""
      yield prefix, text, observation


# Labels.


def tokens_of(coordinates: Coordinates) -> np.ndarray:
  """Returns the indices of the first example's tokens, without padding."""
  return np.flatnonzero(np.asarray(coordinates.segment[0]) >= 0)


def position_labels(
  task: Task, coordinates: Coordinates, ids: Ids
) -> list[str]:
  """Returns a label for every key or row of a batch's first example, which
  holds, or must say, the tokens `ids`.

  It is the sign of a mark, like `$`, `+` or `⊥`, and of the end token; a4 for a
  digit of a, counted from the right end, x4 for an item and y4 for an output,
  counted from the left, y4,2 on a grid.
  """
  at = tokens_of(coordinates)
  labels = task.symbols(np.asarray(ids)[at])
  for i in at:
    segment = int(coordinates.segment[0, i])
    left, right = (np.asarray(offsets)[0, i] for offsets in coordinates[1:3])
    digit = None
    if segment < task.target_segment:
      digit = task.operand_place(segment, int(left.sum()), int(right.sum()))
    if segment == task.target_segment and ids[i] != task.end:
      labels[i] = f"y{','.join(map(str, left + 1))}"
    elif digit and task.of_digits:
      labels[i] = f"{chr(ord('a') + digit[0])}{digit[1] + 1}"
    elif digit:
      place = left if task.operand_in == "own" and not segment else left.sum()
      labels[i] = f"x{','.join(map(str, np.ravel(place) + 1))}"
  return labels


class Labels(NamedTuple):
  """Labels name each row and key of an attention site."""

  rows: list[str]
  keys: list[str]


def labels_by_site(task: Task, batch: Batch) -> dict[str, Labels]:
  """Returns the labels of the rows and keys of a batch's first example, at each
  attention site of the decoder."""
  label = lambda at, ids: position_labels(task, at, np.asarray(ids)[0])
  rows = label(batch.rows, batch.target)
  labels = {"self": Labels(rows, label(batch.keys, batch.inputs))}
  if batch.source_keys is not None:
    labels["cross"] = Labels(rows, label(batch.source_keys, batch.source))
  return labels


def _set_ticks(
  axis: Any, labels: list[str], inches: float, starts: Sequence[int] = (0,)
) -> None:
  """Sets a tick at each of the labels, which take up so many inches, or at
  every second, third, ... if there is no room for all; and so from each of some
  starts on."""
  step = max(math.ceil(0.11 * len(labels) / inches), 1)
  places = [start + i for start in starts for i in range(0, len(labels), step)]
  axis.set_ticks(places, labels[::step] * len(starts))
  if axis.axis_name == "x" and max(map(len, labels), default=0) > 1:
    axis.set_tick_params(rotation=90)


def _legend(figure: plt.Figure, handles: dict[str, Any]) -> None:
  """Draws the legend of {name: line or patch} below all panels."""
  place: dict[str, Any] = {"loc": "outside lower center"}
  figure.legend([*handles.values()], [*handles], ncols=5, **place)


# Attention and biases.


def matrices(
  values: np.ndarray,
  title: str,
  key_labels: list[str],
  row_labels: list[str],
  label: str = "attention weight",
  row_text: str = "must say",
) -> plt.Figure:
  """Draws a matrix for each of `values` [N, H, T, S], all on one scale that has
  0 in it; -inf stays white. `label` is what the values are, `row_text` what a
  row does with the token that is its label."""
  layers, heads, num_rows, num_keys = values.shape
  cell = min(0.12, 3.1 / max(num_keys, num_rows))
  width, height = max(cell * num_keys, 1.4), max(cell * num_rows, 1.0)
  room = max(int((WIDTH - 1) / width), 1)
  columns = max(n for n in range(1, room + 1) if heads % n == 0)
  # The matrices are tiles of one image: a panel for each would take seconds.
  gap_x = math.ceil(0.1 * num_keys / width)
  gap_y = math.ceil(0.22 * num_rows / height)  # has a title
  tile_x, tile_y = num_keys + gap_x, num_rows + gap_y
  margins = (0, 0), (0, 0), (gap_y, 0), (0, gap_x)
  tiles = np.pad(values, margins, constant_values=-np.inf)
  mosaic = tiles.reshape(-1, columns, tile_y, tile_x).swapaxes(1, 2)
  mosaic = np.ma.masked_invalid(mosaic.reshape(-1, columns * tile_x))
  tile_rows = layers * heads // columns
  size = width * tile_x / num_keys, height * tile_y / num_rows
  figure, (axis,) = panels(1, size[0] * columns, size[1] * tile_rows, 1)
  finite, colors = mosaic.compressed(), "Blues"
  low, high = finite.min(initial=0), finite.max(initial=0)
  if not label.endswith("weight"):
    colors = "viridis_r"
    # In whole numbers, so that strengths that hardly differ look alike.
    low, high = math.floor(low), math.ceil(high)
  high = high if high > low else 1
  axis.imshow(mosaic, cmap=colors, vmin=low, vmax=high)
  for tile, (layer, head) in enumerate(np.ndindex(layers, heads)):
    x, y = tile % columns * tile_x - 0.5, tile // columns * tile_y + gap_y - 0.5
    frame = plt.Rectangle((x, y), num_keys, num_rows, fill=False, clip_on=False)
    axis.add_patch(frame)
    prefix = f"layer {layer} " if layers > 1 else ""
    style = {"textcoords": "offset points", "ha": "center"}
    middle = x + num_keys / 2, y
    axis.annotate(f"{prefix}head {head}", middle, (0, 2), **style)
  axis.spines[:].set_visible(False)
  _set_ticks(axis.xaxis, key_labels, width, range(0, mosaic.shape[1], tile_x))
  _set_ticks(axis.yaxis, row_labels, height, range(gap_y, len(mosaic), tile_y))
  figure.colorbar(axis.images[0], label=label, aspect=30, pad=0.01)
  figure.suptitle(title)
  names = [f"{x}: {text}" for x, text in NAMES.items() if x in key_labels]
  legend = f" ({'; '.join(names)})" if names else ""
  figure.supxlabel(f"key: what it holds{legend}")
  figure.supylabel(f"row: what it {row_text}")
  return figure


def attention(data: FigureData) -> Named:
  """Draws the weights of each attention site on each input."""
  for prefix, text, observation in data.named_inputs():
    for site, figure in attention_on(observation, text):
      yield f"{prefix}attention_{site}", figure


def draw_biases(
  model: Model, batch: Batch, folder: pathlib.Path
) -> list[pathlib.Path]:
  """Draws the bias of a model's scaffold at the rows and keys of a batch;
  returns the path of a figure for each decoder site with a bias."""
  biases = jax.jit(model.experiment.site_inputs)(model.scaffold, batch).biases
  return [
    save(
      matrices(
        np.asarray(biases[site].values)[:, 0],
        f"{site}-attention bias, seed {model.seed} (white: closed)",
        labels.keys,
        labels.rows,
        label="bias",
      ),
      folder / f"bias_{site}.png",
    )
    for site, labels in labels_by_site(model.experiment.task, batch).items()
    if site in model.scaffold
  ]


def attention_on(
  observation: Observation, text: str, layers: slice = slice(None)
) -> Named:
  """Draws the attention weights of some layers on an observation's one input.

  Keys are labelled by the token that they hold, rows by the one that they must
  say; those of the encoder hold theirs. `text` is the end of the title.
  """
  acts, batch = observation.acts, observation.batch
  stacks = {
    "cross": ("decoder", "cross_attention"),
    "self": ("decoder", "self_attention"),
    "encoder": ("encoder", "self_attention"),
  }
  for site, (stack, name) in stacks.items():
    attention = [b[name] for b in blocks(acts, stack) if name in b]
    if not attention:
      continue
    keys, rows = tokens_of(observation.keys(site)), tokens_of(batch.rows)
    key_ids = np.asarray(batch.inputs if site == "self" else batch.source)[0]
    row_ids, verb = np.asarray(batch.target)[0], "must say"
    if site == "encoder":
      rows, row_ids, verb = keys, key_ids, "holds"
    weights = np.stack([x["weights"][0] for x in attention[layers]])
    figure = matrices(
      weights[:, :, rows][..., keys],
      f"{site}-attention on {text}",
      observation.task.symbols(key_ids[keys]),
      observation.task.symbols(row_ids[rows]),
      row_text=verb,
    )
    yield site, figure


# Projections.


def projections(data: FigureData) -> Named:
  """Draws residuals of all rows in each basis, ROWS_PER_PAGE in a figure."""
  for prefix, text, observation in data.named_inputs():
    batch, rows = observation.batch, tokens_of(observation.batch.rows)
    for basis, vectors in BASES.items():
      title = f"projections on {vectors} ({basis} basis), {text}"
      for start in range(0, len(rows), ROWS_PER_PAGE):
        bars = []
        for row in rows[start : start + ROWS_PER_PAGE]:
          ids = int(batch.inputs[0, row]), int(batch.target[0, row])
          holds, says = observation.task.symbols(ids)
          ending = f"\nsays {says}" if batch.weight[0, row] else ""
          bars.append((f"{row}: {holds}{ending}", row, basis))
        number = f"_{start}" if len(rows) > ROWS_PER_PAGE else ""
        figure = _bars(observation, bars, title, height=0.75)
        yield f"{prefix}projections_{basis}{number}", figure


def tokens(data: FigureData) -> Named:
  """Draws three positions of a model that sorts, in both bases: the median item
  in the list, `⊥`, and the median item in the output.

  They are those that the task hinting paper draws (figure 4.14).
  """
  for prefix, text, observation in data.named_inputs():
    # The inputs are the list, `⊥` and the sorted list.
    length, ids = observation.length, observation.batch.inputs[0]
    items, median_rank = ids[:length], (length - 1) // 2
    median = np.sort(items)[median_rank]
    positions = {
      "before": (int(np.argmax(items == median)), f"{median} before ⊥"),
      "delimiter": (length, "⊥"),
      "after": (length + 1 + median_rank, f"{median} after ⊥"),
    }
    for name, (row, token) in positions.items():
      if row < len(ids):  # the output of a single item is no input
        title = f"{token}, in {text}: projections of the residual"
        bars = [(f"{basis}\nbasis", row, basis) for basis in BASES]
        figure = _bars(observation, bars, title, height=1.6)
        yield f"{prefix}token_{name}", figure


def _bars(
  observation: Observation,
  bars: list[tuple[str, int, str]],
  title: str,
  height: float,
) -> plt.Figure:
  """Draws inner products of residuals with the vectors of a basis, as bars.

  The vectors are those of the tokens that a list or a number is made of, and of
  the marks among the inputs and targets. There is a row of panels of some
  height for each of `bars`, (label, row of the decoder, basis), and a column
  for each layer and residual.
  """
  task, batch = observation.task, observation.batch
  ids = {*range(task.first_item, task.first_item + task.base)}
  ids |= {*batch.inputs[0].tolist(), *batch.target[0].tolist()}
  ids = sorted(ids - {task.pad})
  columns = [(i, x) for i in range(observation.num_layers) for x in RESIDUALS]
  n = len(columns)
  width = min(max(0.11 * len(ids), 1.6), (WIDTH - 1) / n)
  figure, axes = panels(n * len(bars), width, height, n, sharex=True)
  for (i, j), axis in np.ndenumerate(np.array(axes).reshape(-1, n)):
    (label, row, basis), (layer, name) = bars[i], columns[j]
    colors = {batch.inputs[0, row]: "tab:orange"}
    if batch.weight[0, row]:  # else this row's output is not scored
      target = batch.target[0, row]
      colors[target] = "tab:purple" if target in colors else "tab:green"
    residual = observation.residual(layer, name)[0, row]
    heights = observation.project(residual, basis)[ids]
    axis.bar(
      range(len(ids)), heights, color=[colors.get(x, "0.7") for x in ids]
    )
    axis.axhline(0, color="0.5", linewidth=0.4)
    _set_ticks(axis.xaxis, task.symbols(ids), width)
    axis.locator_params(axis="y", nbins=3)
    axis.spines[["top", "right"]].set_visible(False)
    if i == 0:
      axis.set_title(location_name({"layer": layer, "part": name, "line": ""}))
    if j == 0:
      axis.set_ylabel(label, rotation=0, ha="right", va="center")
  patch = lambda color: plt.Rectangle((0, 0), 1, 1, color=color)
  _legend(figure, {text: patch(color) for color, text in COLORS.items()})
  figure.suptitle(title)
  return figure


# Curves.


def curves(points: pd.DataFrame, title: str) -> plt.Figure:
  """Draws medians of values against length, and the area of their range, in a
  panel each. `points` are rows of probes with the columns `panel`, `name` (in
  the legend) and `curve`, which tells apart curves of one name.

  Curves of one name have one style in all panels. Those of different names are
  moved up by a point and a half each, so that equal ones are seen side by side.
  """
  parts, names = points.groupby("panel", sort=False), [*points.name.unique()]
  (figure, axes), handles = panels(len(parts), 3.2, 2.4), {}
  row = points.iloc[0]
  x_label = f"length ({row['unit']}; dotted: longest trained)"
  for axis, (panel_title, part) in zip(axes, parts, strict=True):
    axis.set(title=panel_title, xlabel=x_label, xscale="log")
    axis.margins(y=0.08)
    axis.axvline(row["train_length"], color="0.6", linestyle=":")
    for (name, _), curve in part.groupby(["name", "curve"], sort=False):
      i, values = names.index(name), curve.groupby("length").value
      lengths = sorted(set(curve.length))
      color = f"C{i % 10}"
      style = MARKERS[i % len(MARKERS)] + LINE_STYLES[i % len(LINE_STYLES)]
      (line,) = axis.plot(lengths, values.median(), style, color=color)
      area = axis.fill_between(
        lengths, values.min(), values.max(), color=color, alpha=0.15
      )
      y = 1.5 * (i - (len(names) - 1) / 2)
      for artist in (line, area):
        moved = offset_copy(axis.transData, figure, y=y, units="points")
        artist.set_transform(moved)
      handles[name] = line
      axis.set_xticks(lengths, list(map(str, lengths)))
      axis.minorticks_off()
    if axis.dataLim.y1 <= 1:  # rates have one scale
      axis.set_ylim(-0.05, 1.05)
  _legend(figure, handles)
  figure.suptitle(title)
  return figure


def by_length(data: FigureData) -> Named:
  """Draws probes against length: of a probe of single heads, a curve for each
  head of one seed; of any other, the median over seeds and their range."""
  points = []
  for row in data.rows:
    probe, head = PROBES[row["metric"]], row["head"]
    if probe.by_length and (head is None or row["seed"] == data.seed):
      of_head = "" if head is None else f", each head of seed {data.seed}"
      names = {"panel": probe.title + of_head, "name": location_name(row)}
      points.append(row | names | {"curve": f"{head}"})
  if points:
    yield "by_length", curves(pd.DataFrame(points), "probes against length")


def draw_comparison(
  models: dict[str, list[dict]], path: pathlib.Path, title: str
) -> pathlib.Path:
  """Draws the probes of several models against length: their rows by name,
  without those of single heads; returns the path."""
  rows = titled(models)
  # A title "PROBE, LOCATION" takes two lines.
  panel = rows.title.str.replace(", ", ",\n", n=1)
  points = rows.assign(panel=panel, name=rows.model, curve="")
  return save(curves(points, title), path)


# Exact match without a head, without a line, with another residual.


def ablation(metric: str, data: FigureData) -> Named:
  """Draws a table of exact match without each head or line, if that metric and
  "intact" were measured: a row for each layer, site and line, a column for each
  head.

  A line is closed in one head, in all heads of its layer, or in all layers of
  its site; if layers share their lines, in one head of every layer, or in all
  heads. A small set that suffices for the intact exact match is framed.
  """
  intact, ablated, framed = (
    select_rows(data.rows, name, seed=data.seed)
    for name in ("intact", metric, "enough_lines")
  )
  if not (intact and ablated):
    return
  label_of = lambda row: ", ".join(
    filter(None, (location_name(row), row["line"]))
  )
  column_of = lambda row: "all" if row["head"] is None else f"{row['head']}"
  labels = list(dict.fromkeys(map(label_of, ablated)))
  labels.sort(key=lambda label: not label.startswith("layer"))
  heads = sorted(set(map(column_of, ablated)), key=lambda x: (len(x), x))
  figure, (axis,) = panels(1, 0.45 * len(heads) + 2.5, 0.25 * len(labels) + 0.4)
  values = np.full((len(labels), len(heads)), np.nan)
  cell_of = lambda row: (
    labels.index(label_of(row)),
    heads.index(column_of(row)),
  )
  for row in ablated:
    i, j = cell_of(row)
    values[i, j] = row["value"]
    axis.text(j, i, f"{100 * row['value']:.0f}", ha="center", va="center")
  axis.imshow(values, cmap="RdYlGn", vmin=0, vmax=1, alpha=0.75)
  axis.set_xticks(range(len(heads)), heads)
  axis.set_yticks(range(len(labels)), labels)
  axis.set_xlabel("head")
  if metric == "without_line" and framed:
    for i, j in map(cell_of, framed):
      axis.add_patch(plt.Rectangle((j - 0.47, i - 0.45), 0.94, 0.9, fill=False))
    text = f"head (framed: {len(framed)} lines that are enough together)"
    axis.set_xlabel(text)
  title = f"EM (%) {metric.replace('_', ' each ')}"
  figure.suptitle(title + _intact_text(intact[0]))
  yield metric, figure


def _intact_text(intact: dict) -> str:
  """Returns the part of a title that names the intact model and its EM."""
  return (
    f", {intact['length']} {intact['unit']}"
    f" (intact {100 * intact['value']:.1f}), seed {intact['seed']}"
  )


def patched(data: FigureData) -> Named:
  """Draws a map for each residual that was patched: how often each output
  (column) is right when the residual of a row or of a source token is another
  input's."""
  intact = select_rows(data.rows, "intact", seed=data.seed)
  rows = select_rows(data.rows, "patched", seed=data.seed)
  if not (intact and rows):
    return
  residual = lambda row: (row["part"], row["layer"])
  groups = [[*group] for _, group in itertools.groupby(rows, residual)]
  inches = 0.12 * max(map(len, data.labels.values()))
  inches = min(max(inches, 1.6), 3.1)
  figure, axes = panels(len(groups), inches + 0.4, inches + 0.4)
  for axis, group in zip(axes, groups, strict=True):
    values, part = [row["by_position"] for row in group], group[0]["part"]
    axis.imshow(values, cmap="Blues_r", vmin=0, vmax=1)
    axis.set_title(
      location_name(group[0]) + " embedding" * (part in data.labels)
    )
    row_labels = data.labels["source" if part == "source" else "inputs"]
    _set_ticks(axis.xaxis, data.labels["outputs"], inches)
    _set_ticks(axis.yaxis, row_labels[: len(group)], inches)
  figure.colorbar(axes[0].images[0], ax=axes, label="share still right")
  text = "how often outputs are right with one residual of another input"
  figure.suptitle(text + _intact_text(intact[0]))
  figure.supxlabel("output")
  figure.supylabel("what the patched row or source token holds")
  yield "patched", figure


class Figure(NamedTuple):
  """An entry of FIGURES, which probe.figures can name."""

  draw: Callable[[FigureData], Named]
  requires: Requirement


# All figures, by their names in probe.figures.
FIGURES = {
  "by_length": Figure(by_length, ALL),
  "lines": Figure(partial(ablation, "without_line"), LINES),
  "heads": Figure(partial(ablation, "without_head"), ALL),
  "attention": Figure(attention, ALL),
  "patches": Figure(patched, ALL),
  "tokens": Figure(tokens, SORTING),
  "projections": Figure(projections, ALL),
}
