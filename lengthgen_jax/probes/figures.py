"""This module draws what happens inside models: attention and biases,
projections of residuals, and what probes and certificates measured."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from lengthgen_jax.coordinates import Coordinates
from lengthgen_jax.drawing import (
  WIDTH,
  Axis,
  XAxis,
  offset_copy,
  panels,
  plt,
  save,
)
from lengthgen_jax.errors import check
from lengthgen_jax.probes.activations import RESIDUALS, Observation
from lengthgen_jax.probes.registry import (
  ALL,
  LINES,
  PROBES,
  SORTING,
  Requirement,
)
from lengthgen_jax.probes.tables import (
  group_by_location,
  location_name,
  panel_titles,
  select_rows,
  values_by_length,
)
from lengthgen_jax.tasks.task import Ids, Task

MAX_TOKENS = 200  # of the longest sequence that is drawn
ROWS_PER_PAGE = 12  # of projections
# What the vectors of each basis are.
BASES = {"encoder": "embedding rows", "decoder": "output columns"}
LINE_STYLES = ("-", "--", ":", "-.")
MARKERS = "osD^vP*X"
KEY_TEXT = (
  "key: what it holds (a1: the last digit of a; x1: the first item;"
  " y1: the first output)"
)
ROW_TEXT = "row: what it must say"


class FigureInput(NamedTuple):
  """A FigureInput is an input that is drawn, and a model on it.

  Attributes:
    text: the input as one types it; of a random input, the prompt's tokens.
    observation: the model on a batch of this one input.
  """

  text: str
  observation: Observation

  def check_length(self) -> None:
    """Raises a UsageError if the input is longer than a figure can show."""
    batch = self.observation.batch
    sequences = [batch.keys, batch.source_keys]
    longest = max(len(_tokens(keys)) for keys in sequences if keys)
    check(
      longest <= MAX_TOKENS,
      f"{self.text!r} makes a sequence of {longest} tokens, and figures show at"
      f" most {MAX_TOKENS}: choose a shorter one in probe.inputs, and"
      " probe.random_inputs=0 if it is a random one",
    )


@dataclasses.dataclass(frozen=True)
class FigureData:
  """FigureData is everything that the figures of a model are drawn from.

  Attributes:
    inputs: the single inputs that are drawn.
    rows: the rows that all probes measured now, of all seeds.
    seed: the seed of the model whose inputs and heads are drawn.
    labels: a label for each position of the "source" (if there is one), of the
      decoder's "inputs" and of the scored "outputs".
    logs: for each stage whose training probes watched, by name, the rows of its
      metrics.jsonl and of these probes.
  """

  inputs: list[FigureInput]
  rows: list[dict]
  seed: int
  labels: dict[str, list[str]]
  logs: dict[str, tuple[list[dict], list[dict]]]

  def named_inputs(self) -> Iterator[tuple[str, FigureInput]]:
    """Yields (prefix of the figures' names, input) for each input."""
    for number, figure_input in enumerate(self.inputs, start=1):
      yield f"input{number}_" if len(self.inputs) > 1 else "", figure_input


# Labels.


def _tokens(coordinates: Coordinates) -> np.ndarray:
  """Returns the indices of the first example's tokens, without padding."""
  return np.flatnonzero(np.asarray(coordinates.segment[0]) >= 0)


def position_labels(
  task: Task, coordinates: Coordinates, ids: Ids
) -> list[str]:
  """Returns a label for every key or row of a batch's first example.

  It is the sign of a mark, like `$`, `+` or `⊥`, and of the end token; a4 for
  a digit of a, counted from the right end, x4 for an item and y4 for an output,
  counted from the left, y4,2 on a grid; and "" for padding.

  Args:
    task: the task of the batch.
    coordinates: of the keys, or of the rows.
    ids: the tokens that the keys hold, or that the rows must say.
  """
  labels, is_token = [], np.asarray(coordinates.segment[0]) >= 0
  for at, sign in zip(
    _tokens(coordinates), _signs(task, ids, is_token), strict=True
  ):
    segment = int(coordinates.segment[0, at])
    left, right = (
      np.asarray(x)[0, at] for x in (coordinates.left, coordinates.right)
    )
    if segment == task.target_segment and ids[at] != task.end:
      labels.append(f"y{','.join(map(str, left + 1))}")
      continue
    digit = None
    if segment < task.target_segment:
      digit = task.operand_place(segment, int(left.sum()), int(right.sum()))
    if digit is None:
      labels.append(sign)
    elif task.of_digits:
      labels.append(f"{'ab'[digit[0]]}{digit[1] + 1}")
    else:
      labels.append(f"x{left.sum() + 1}")
  return labels + [""] * (len(is_token) - len(labels))


def _signs(task: Task, ids: Ids, where: Any = slice(None)) -> list[str]:
  """Returns tokens as people write them, of those of a sequence."""
  return task.symbols(np.asarray(ids)[where])


def _set_ticks(axis: Axis, labels: list[str], inches: float) -> None:
  """Sets a tick at each of the labels, which take up so many inches, or at
  every second, third, ... if there is no room for all."""
  step = max(math.ceil(0.11 * len(labels) / inches), 1)
  axis.set_ticks(range(0, len(labels), step), labels[::step])
  axis.set_tick_params(length=1, pad=1)
  if isinstance(axis, XAxis) and max(map(len, labels), default=0) > 1:
    axis.set_tick_params(rotation=90)


def _legend(figure: plt.Figure, handles: dict[str, Any]) -> None:
  """Draws the legend of {name: line or patch} below all panels."""
  place: dict[str, Any] = {"loc": "outside lower center"}
  names = list(handles)
  figure.legend(
    list(handles.values()), names, ncols=min(len(names), 5), **place
  )


# Attention and biases.


def matrices(
  values: np.ndarray,
  title: str,
  key_labels: list[str],
  row_labels: list[str],
  *,
  label: str = "attention weight",
  key_text: str = KEY_TEXT,
  row_text: str = ROW_TEXT,
) -> plt.Figure:
  """Draws a matrix for each layer and head, all on one scale that has 0 in it;
  -inf stays white.

  Args:
    values: the matrices [N, H, T, S] of N layers and H heads.
    title: the title above all panels.
    key_labels, row_labels: of the S keys and the T rows.
    label: what the values are.
    key_text, row_text: what the labels are.
  """
  layers, heads, num_rows, num_keys = values.shape
  cell = min(0.12, 3.1 / max(num_keys, num_rows))
  width, height = max(cell * num_keys, 1.4), max(cell * num_rows, 1.0)
  room = max(int((WIDTH - 1) / width), 1)
  columns = max(n for n in range(1, room + 1) if heads % n == 0)
  shared = {"sharex": True, "sharey": True}
  figure, axes = panels(layers * heads, width, height + 0.2, columns, **shared)
  finite = values[np.isfinite(values)]
  low, high = finite.min(initial=0), finite.max(initial=0)
  is_weight = label.endswith("weight")
  if not is_weight:
    # In whole numbers, so that strengths that hardly differ look alike.
    low = math.floor(low)
    high = max(math.ceil(high), low + 1)
  for axis, (layer, head) in zip(axes, np.ndindex(layers, heads), strict=True):
    matrix = np.ma.masked_invalid(values[layer, head])
    axis.imshow(
      matrix,
      cmap="Blues" if is_weight else "viridis_r",
      vmin=low,
      vmax=high or 1,
      aspect="auto",
    )
    prefix = f"layer {layer} " if layers > 1 else ""
    axis.set_title(f"{prefix}head {head}", pad=2)
    _set_ticks(axis.xaxis, key_labels, width)
    _set_ticks(axis.yaxis, row_labels, height)
  figure.colorbar(axes[0].images[0], ax=axes, label=label, aspect=40, pad=0.01)
  figure.suptitle(title)
  figure.supxlabel(key_text)
  figure.supylabel(row_text)
  return figure


def attention(data: FigureData) -> Iterator[tuple[str, plt.Figure]]:
  """Draws the weights of each attention site on each input."""
  for prefix, (text, observation) in data.named_inputs():
    for site, figure in attention_on(observation, text):
      yield f"{prefix}attention_{site}", figure


def attention_on(
  observation: Observation, text: str, layers: slice = slice(None)
) -> Iterator[tuple[str, plt.Figure]]:
  """Draws the attention weights of some layers on an observation's one input.

  Keys are labelled by the token that they hold, rows by the one that they must
  say; those of the encoder hold theirs. `text` is the end of the title.
  """
  acts, batch = observation.acts, observation.batch
  decoder, encoder = acts["decoder"]["blocks"], acts["encoder"].get("blocks")
  blocks_by_site = {
    "cross": [block["cross"] for block in decoder if "cross" in block],
    "self": [block["self"] for block in decoder],
    "encoder": [block["self"] for block in encoder or ()],
  }
  signs = lambda ids, where: _signs(observation.task, ids[0], where)
  for site, blocks in blocks_by_site.items():
    if not blocks:
      continue
    keys = _tokens(observation.keys(site))
    key_labels = signs(batch.inputs if site == "self" else batch.source, keys)
    rows, row_labels, verb = keys, key_labels, "holds"
    if site != "encoder":
      rows, verb = _tokens(batch.rows), "must say"
      row_labels = signs(batch.target, rows)
    weights = np.stack([acts["weights"][0] for acts in blocks[layers]])
    figure = matrices(
      weights[:, :, rows][..., keys],
      f"{site}-attention on {text}",
      key_labels,
      row_labels,
      key_text="key: the token that it holds",
      row_text=f"row: the token that it {verb}",
    )
    yield site, figure


# Projections.


def projections(data: FigureData) -> Iterator[tuple[str, plt.Figure]]:
  """Draws the residuals of all rows in each basis, ROWS_PER_PAGE in a figure."""
  for prefix, (text, observation) in data.named_inputs():
    batch, task = observation.batch, observation.task
    rows = _tokens(batch.rows)
    ids = batch.inputs[0], batch.target[0]
    inputs, targets = (_signs(task, x) for x in ids)
    labels = {row: f"{row}: {inputs[row]}" for row in rows}
    for row in np.flatnonzero(batch.weight[0]):
      labels[row] += f"\nsays {targets[row]}"
    for basis, vectors in BASES.items():
      title = f"projections on {vectors} ({basis} basis), {text}"
      for start in range(0, len(rows), ROWS_PER_PAGE):
        number = f"_{start}" if len(rows) > ROWS_PER_PAGE else ""
        bars = [
          (labels[row], row, basis)
          for row in rows[start : start + ROWS_PER_PAGE]
        ]
        name = f"{prefix}projections_{basis}{number}"
        yield name, _bars(observation, bars, title, height=0.75)


def tokens(data: FigureData) -> Iterator[tuple[str, plt.Figure]]:
  """Draws three positions of a model that sorts, in both bases: the median item
  in the list, `⊥`, and the median item in the output.

  They are those that the task hinting paper draws (figure 4.14).
  """
  for prefix, (text, observation) in data.named_inputs():
    # The inputs are the list, `⊥` and the sorted list.
    length, ids = observation.length, np.asarray(observation.batch.inputs[0])
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
  """Draws inner products of residuals with the vectors of a basis, as bars over
  the alphabet.

  There is a row of panels of some height for each of `bars`, (label, row of the
  decoder, basis), and a column for each layer and residual.
  """
  layers = range(observation.num_layers)
  columns = [(layer, name) for layer in layers for name in RESIDUALS]
  batch, ids = observation.batch, _alphabet(observation)
  width = min(max(0.11 * len(ids), 1.6), (WIDTH - 1) / len(columns))
  figure, axes = panels(
    len(bars) * len(columns), width, height, len(columns), sharex=True
  )
  for i, axis in enumerate(axes):
    (label, row, basis) = bars[i // len(columns)]
    layer, name = columns[i % len(columns)]
    residual = observation.residual(layer, name)[0, row]
    colors = {int(batch.inputs[0, row]): "tab:orange"}
    if batch.weight[0, row]:  # else this row's output is not scored
      target = int(batch.target[0, row])
      colors[target] = "tab:purple" if target in colors else "tab:green"
    axis.bar(
      range(len(ids)),
      observation.project(residual, basis)[ids],
      color=[colors.get(i, "0.7") for i in ids],
    )
    axis.axhline(0, color="0.5", linewidth=0.4)
    axis.locator_params(axis="y", nbins=3)
    axis.spines[["top", "right"]].set_visible(False)
    if i < len(columns):
      axis.set_title(location_name({"layer": layer, "part": name}))
    if i % len(columns) == 0:
      axis.set_ylabel(label, rotation=0, ha="right", va="center")
  _set_ticks(axes[0].xaxis, _signs(observation.task, ids), width)
  meanings = {"orange": "the row's input", "green": "what it must say"}
  meanings["purple"] = "both"
  patch = lambda color: plt.Rectangle((0, 0), 1, 1, color=f"tab:{color}")
  _legend(figure, {text: patch(color) for color, text in meanings.items()})
  figure.suptitle(title)
  return figure


def _alphabet(observation: Observation) -> list[int]:
  """Returns the ids of the tokens that bars are drawn for.

  They are those that a list or a number is made of, and the marks among the
  inputs and targets of the batch's first example; never PAD.
  """
  task, batch = observation.task, observation.batch
  items = range(task.first_item, task.first_item + task.base)
  marks = {*batch.inputs[0].tolist(), *batch.target[0].tolist()}
  return sorted({*items, *marks} - {task.pad})


def bases(data: FigureData) -> Iterator[tuple[str, plt.Figure]]:
  """Draws the norms of both bases' vectors, and their cosines."""
  observation = data.inputs[0].observation
  ids = _alphabet(observation)
  signs = _signs(observation.task, ids)
  vectors = {name: basis[ids] for name, basis in observation.bases.items()}
  figure, axes = panels(5, 2.4, 2.6)
  for axis, (basis, kind) in zip(axes, BASES.items(), strict=False):
    norms = np.linalg.norm(vectors[basis], axis=1)
    axis.bar(range(len(ids)), norms, color="0.5")
    axis.set_title(f"norms, {basis} basis\n({kind})")
    _set_ticks(axis.xaxis, signs, 2.2)
  pairs = ["encoder"] * 2, ["decoder"] * 2, ["encoder", "decoder"]
  for axis, (first, second) in zip(axes[2:], pairs, strict=True):
    values = cosines(vectors[first], vectors[second])
    axis.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    axis.set_title(f"cosines, {first} (rows)\nwith {second} (columns)")
    _set_ticks(axis.xaxis, signs, 1.9)
    _set_ticks(axis.yaxis, signs, 1.9)
  figure.colorbar(axes[2].images[0], ax=axes[2:], label="cosine", pad=0.01)
  figure.suptitle("the vectors of both bases, by token")
  yield "bases", figure


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
  """Returns the cosines [V, W] between the vectors [V, D] and [W, D]."""
  unit = lambda x: x / np.maximum(np.linalg.norm(x, axis=1), 1e-9)[:, None]
  return unit(first) @ unit(second).T


# Curves.

Series = tuple[str, dict[int, list[float]]]  # its name, and {x: values}


def curves(
  series_by_panel: dict[str, list[Series]],
  title: str,
  x_label: str,
  trained: int | None = None,
) -> tuple[plt.Figure, list[plt.Axes]]:
  """Draws medians of values, and the area of their range, in a panel each.

  Series of one name have one style in all panels. Those of different names are
  moved up by a point and a half each, so that equal ones are seen side by side.

  Args:
    series_by_panel: the series of each panel by its title.
    title: the title above all panels.
    x_label: what x is.
    trained: the longest length of training, if x is a length; the axis of
      lengths is logarithmic.
  """
  figure, axes = panels(len(series_by_panel), 3.2, 2.4)
  names = list(dict.fromkeys(x for s in series_by_panel.values() for x, _ in s))
  handles = {}
  for axis, panel_title in zip(axes, series_by_panel, strict=True):
    if trained is not None:
      axis.set_xscale("log")
      axis.axvline(trained, color="0.6", linestyle=":", linewidth=1)
    for name, values in series_by_panel[panel_title]:
      i, xs = names.index(name), list(values)
      low, median, high = np.transpose(
        [np.quantile(values[x], (0, 0.5, 1)) for x in xs]
      )
      (line,) = axis.plot(
        xs,
        median,
        LINE_STYLES[i % len(LINE_STYLES)],
        color=f"C{i % 10}",
        marker=MARKERS[i % len(MARKERS)],
        markersize=5,
        markerfacecolor="none",
        linewidth=1,
      )
      area = axis.fill_between(
        xs, low, high, color=f"C{i % 10}", alpha=0.15, linewidth=0
      )
      points = 1.5 * (i - (len(names) - 1) / 2)
      moved = offset_copy(axis.transData, figure, y=points, units="points")
      line.set_transform(moved)
      area.set_transform(moved)
      handles[name] = line
      if trained is not None:
        axis.set_xticks(xs, list(map(str, xs)))
    axis.minorticks_off()
    axis.set_title(panel_title)
    axis.set_xlabel(x_label)
    axis.margins(y=0.08)
  _legend(figure, handles)
  figure.suptitle(title)
  return figure, axes


def by_length(data: FigureData) -> Iterator[tuple[str, plt.Figure]]:
  """Draws probes against length: of a probe of single heads, a curve for each
  head of one seed; of any other, the median over seeds and their range."""
  panels_of_rows, measured = {}, {row["metric"] for row in data.rows}
  for metric, probe in PROBES.items():
    if probe.by_length and metric in measured:
      rows, title = select_rows(data.rows, metric), probe.title
      if rows[0]["head"] is not None:
        rows = select_rows(rows, metric, seed=data.seed)
        title += f", each head of seed {data.seed}"
      panels_of_rows[title] = [
        (location, values_by_length(curve))
        for (location, _), curve in group_by_location(rows, "head").items()
      ]
  if panels_of_rows:
    yield (
      "by_length",
      _by_length(panels_of_rows, "probes against length", data.rows),
    )


def _by_length(
  series_by_panel: dict[str, list[Series]], title: str, rows: list[dict]
) -> plt.Figure:
  """Draws curves against length, of which some rows say the unit."""
  label = f"length ({rows[0]['unit']}; dotted: longest trained)"
  trained = rows[0]["train_length"]
  return curves(series_by_panel, title, label, trained)[0]


def draw_comparison(
  models: dict[str, list[dict]], path: pathlib.Path | str, title: str
) -> pathlib.Path:
  """Draws the probes of several models against length; returns the path.

  Args:
    models: the probe rows of each model by its name, without those of single
      heads; all values are rates.
    path: the path of the PNG to write.
    title: the title of the figure.
  """
  all_rows = [row for rows in models.values() for row in rows]
  series_by_panel = {
    # A title "PROBE, LOCATION" takes two lines.
    panel_title.replace(", ", ",\n", 1): [
      (model, values_by_length(panel_rows))
      for model, rows in models.items()
      if (panel_rows := group_by_location(rows, "metric").get(panel))
    ]
    for panel, panel_title in panel_titles(all_rows).items()
  }
  return save(_by_length(series_by_panel, title, all_rows), path)


def by_step(data: FigureData) -> Iterator[tuple[str, plt.Figure]]:
  """Draws loss, exact match and probes against step, for every training that
  probes watched: a curve for each seed, location and head."""
  for stage, (metrics, rows) in data.logs.items():
    series = {"loss": {}, "validation EM": {}}
    for row in metrics:
      for panel, field in zip(series, ("loss", "em"), strict=True):
        curve = series[panel].setdefault(("each seed", row["seed"]), {})
        curve[row["step"]] = [row[field]]
    for row in rows:
      panel = series.setdefault(PROBES[row["metric"]].title, {})
      key = location_name(row), row["seed"], row["head"]
      panel.setdefault(key, {})[row["step"]] = [row["value"]]
    named = {
      panel: [(key[0], curve) for key, curve in by_key.items()]
      for panel, by_key in series.items()
    }
    figure, axes = curves(named, f"probes during training ({stage})", "step")
    axes[0].set_yscale("log")
    yield f"training_{stage}", figure


# Exact match without a head, without a line, with another residual.


def without_head(data: FigureData) -> Iterator[tuple[str, plt.Figure]]:
  """Draws a table of exact match without each head: a row for each layer and
  site, a column for each head."""
  yield from _ablation(data, "without_head", location_name)


def without_line(data: FigureData) -> Iterator[tuple[str, plt.Figure]]:
  """Draws a table of exact match without each line of the bias.

  A line is closed in one head, in all heads of its layer, or in all layers of
  its site; if layers share their lines, in one head of every layer, or in all
  heads. A small set that suffices for the intact exact match is framed.
  """

  def label(row: dict) -> str:
    layers = "all layers " if row["layer"] is None else ""
    return f"{layers}{location_name(row)}: {row['line']}"

  yield from _ablation(data, "without_line", label)


def _ablation(
  data: FigureData, metric: str, label_of: Callable[[dict], str]
) -> Iterator[tuple[str, plt.Figure]]:
  """Draws a table of exact match by ablated part, which `label_of` names, and
  head, if the metric and "intact" were measured."""
  intact = select_rows(data.rows, "intact", seed=data.seed)
  ablated = select_rows(data.rows, metric, seed=data.seed)
  if not (intact and ablated):
    return
  labels = sorted(
    dict.fromkeys(map(label_of, ablated)),
    key=lambda label: not label.startswith("layer"),
  )
  heads = sorted({row["head"] for row in ablated} - {None})
  if any(row["head"] is None for row in ablated):
    heads.append(None)  # the column of all heads at once
  framed = select_rows(data.rows, "enough_lines", seed=data.seed)
  framed = framed if metric == "without_line" else []
  values = np.full((len(labels), len(heads)), np.nan)
  width, height = 0.45 * len(heads) + 2.5, 0.25 * len(labels) + 0.4
  figure, (axis,) = panels(1, width, height)
  for row in ablated + framed:
    i, j = labels.index(label_of(row)), heads.index(row["head"])
    if row["metric"] == metric:
      values[i, j] = row["value"]
      axis.text(j, i, f"{100 * row['value']:.0f}", ha="center", va="center")
    else:
      corner, style = (j - 0.47, i - 0.45), {"fill": False, "linewidth": 1.3}
      axis.add_patch(plt.Rectangle(corner, 0.94, 0.9, **style))
  colors = {"cmap": "RdYlGn", "vmin": 0, "vmax": 1, "alpha": 0.75}
  axis.imshow(values, aspect="auto", **colors)
  head_labels = ["all" if head is None else str(head) for head in heads]
  axis.set_xticks(range(len(heads)), head_labels)
  axis.set_yticks(range(len(labels)), labels)
  legend = f" (framed: {len(framed)} lines that are enough together)"
  axis.set_xlabel("head" + (legend if framed else ""))
  title = f"EM (%) {metric.replace('_', ' each ')}"
  figure.suptitle(title + _intact_text(intact[0]))
  yield metric, figure


def _intact_text(intact: dict) -> str:
  """Returns the part of a title that names the intact model and its EM."""
  return (
    f", {intact['length']} {intact['unit']}"
    f" (intact {100 * intact['value']:.1f}), seed {intact['seed']}"
  )


def patched(data: FigureData) -> Iterator[tuple[str, plt.Figure]]:
  """Draws a map for each residual that was patched: how often each output
  (column) is right when the residual of a row or of a source token is another
  input's."""
  intact = select_rows(data.rows, "intact", seed=data.seed)
  rows = select_rows(data.rows, "patched", seed=data.seed)
  if not (intact and rows):
    return
  groups, outputs = group_by_location(rows, "part"), data.labels["outputs"]
  size = max(map(len, data.labels.values()))
  inches = min(max(0.12 * size, 1.6), 3.1)
  figure, axes = panels(len(groups), inches + 0.4, inches + 0.4)
  for axis, ((location, part), group) in zip(axes, groups.items(), strict=True):
    values = [row["by_position"] for row in group]
    axis.imshow(values, cmap="Blues_r", vmin=0, vmax=1, aspect="auto")
    axis.set_title(location + " embedding" * (part in ("source", "inputs")))
    row_labels = data.labels["source" if part == "source" else "inputs"]
    _set_ticks(axis.xaxis, outputs, inches)
    _set_ticks(axis.yaxis, row_labels[: len(group)], inches)
  figure.colorbar(
    axes[0].images[0], ax=axes, label="share still right", pad=0.01
  )
  text = "how often outputs are right with one residual of another input"
  figure.suptitle(text + _intact_text(intact[0]))
  figure.supxlabel("output")
  figure.supylabel("what the patched row or source token holds")
  yield "patched", figure


class Figure(NamedTuple):
  """A Figure is an entry of FIGURES, which probe.figures can name.

  Attributes:
    draw: a function of FigureData that yields (name of the file, figure).
    requires: the models that it is for.
  """

  draw: Callable[[FigureData], Iterator[tuple[str, plt.Figure]]]
  requires: Requirement


# All figures, by their names in probe.figures.
FIGURES = {
  "by_length": Figure(by_length, ALL),
  "lines": Figure(without_line, LINES),
  "heads": Figure(without_head, ALL),
  "attention": Figure(attention, ALL),
  "patches": Figure(patched, ALL),
  "training": Figure(by_step, ALL),
  "tokens": Figure(tokens, SORTING),
  "projections": Figure(projections, ALL),
  "bases": Figure(bases, ALL),
}


# Certificates and the construction.


def draw_margins(
  histograms: dict[str, np.ndarray],
  edges: np.ndarray,
  path: pathlib.Path,
  title: str,
) -> pathlib.Path:
  """Draws a histogram of the margins of the cases tried for each certificate;
  returns the path.

  Args:
    histograms: {title of the panel: number of cases in each interval}.
    edges: the histograms' edges; the first and the last are infinite.
    path: where the PNG goes.
    title: the title above all panels.
  """
  figure, axes = panels(len(histograms), 5, 1.9, columns=1, sharex=True)
  # The outer intervals are drawn with a width of 1.
  edges = np.concatenate([[edges[1] - 1], edges[1:-1], [edges[-2] + 1]])
  colors = np.where(edges[:-1] < 0, "tab:red", "tab:blue")
  for axis, (name, counts) in zip(axes, histograms.items(), strict=True):
    axis.bar(edges[:-1], counts, np.diff(edges), align="edge", color=colors)
    axis.set_yscale("log")
    axis.set_ylim(bottom=0.5)
    axis.set_ylabel("cases")
    axis.set_title(name)
  occupied = np.flatnonzero(sum(histograms.values()))
  axes[0].set_xlim(edges[occupied[0]] - 1, edges[occupied[-1]] + 2)
  figure.supxlabel("margin: right logit - best wrong one")
  figure.suptitle(title)
  return save(figure, path)


def draw_precision(
  rows: list[dict], path: pathlib.Path, title: str
) -> pathlib.Path:
  """Draws the longest lists that are sorted against bits of precision; returns
  the path.

  The model is the construction of Theorem 5.1 of the task hinting paper, in the
  variants weights.COPIES. The bits are the significant ones of its parameters
  and activations; scores and weights of attention are not rounded. The dotted
  line is the number of items that the variant "share" is derived to sort, with
  up to 13 bits; with more, that number is 2 896 (weights.max_items). A gray
  line is the greatest length that was tried with the variants it names.

  Args:
    rows: as `precision.longest_lists` returns them.
    path: where the PNG goes.
    title: the title of the figure.
  """
  figure, (axis,) = panels(1, 5, 3.2)
  for copies, marker in (("difference", "o"), ("share", "s")):
    of_variant = [row for row in rows if row["copies"] == copies]
    points = sorted((row["bits"], row["longest"]) for row in of_variant)
    label = f"copies left: {copies}"
    axis.plot(*np.transpose(points), marker=marker, markersize=5, label=label)
  bits = np.array(sorted({row["bits"] for row in rows}))
  label = "(2^bits + 2) / 4"
  axis.plot(bits, (2.0**bits + 2) / 4, ":", color="0.5", label=label)
  for tried in sorted({row["tried"] for row in rows}):
    variants = dict.fromkeys(r["copies"] for r in rows if r["tried"] == tried)
    label = f"longest tried: {', '.join(variants)}"
    axis.axhline(tried, color="0.8", linewidth=1, label=label)
  axis.set_yscale("log", base=2)
  axis.set_ylim(0.7, 2 * max(row["tried"] for row in rows))
  axis.set_xticks(bits)
  axis.set_xlabel("significant bits of parameters and activations")
  axis.set_ylabel("longest lists sorted (items)")
  axis.legend()
  figure.suptitle(title)
  return save(figure, path)
