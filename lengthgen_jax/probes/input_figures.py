"""This module draws figures of single inputs: attention, projections of
residuals on both bases, and the bases themselves.

Projections follow the task hinting paper, section 4 and figure 4.14. If several
inputs are drawn, the names of their pages begin with input1_, input2_ and so
on.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lengthgen_jax.drawing import Canvas, plt
from lengthgen_jax.probes.activations import RESIDUALS, Observation
from lengthgen_jax.probes.pages import (
  FigureData,
  FigureInput,
  Margins,
  Page,
  add_color_bar,
  add_texts,
  grid,
  set_labels,
  split,
)

ROWS_PER_PAGE = 12  # of projections
# What the vectors of each basis are.
BASES = {"encoder": "embedding rows", "decoder": "output columns"}
# (step, tokens): the step between the ticks of at most so many tokens.
TICK_STEPS = ((1, 20), (2, 40), (5, 100))
INPUT_COLOR, TARGET_COLOR, BOTH_COLOR = "tab:orange", "tab:green", "tab:purple"
LEGEND = "orange: the row's input; green: what it must say; purple: both"


# Attention.


def attention(data: FigureData) -> Iterator[Page]:
  """Yields a page for each attention site: its weights by layer and head."""
  for prefix, figure_input in data.named_inputs():
    acts = figure_input.observation.acts
    decoder, encoder = acts["decoder"]["blocks"], acts["encoder"].get("blocks")
    sites = {
      "cross": [block["cross"] for block in decoder if "cross" in block],
      "self": [block["self"] for block in decoder],
      "encoder": [block["self"] for block in encoder or ()],
    }
    for site, layers in sites.items():
      if layers:
        weights = np.stack([np.asarray(acts["weights"][0]) for acts in layers])
        name = f"{prefix}attention_{site}"
        yield _attention_page(name, figure_input, site, weights)


def _attention_page(
  name: str, figure_input: FigureInput, site: str, weights: np.ndarray
) -> Page:
  """Returns a page of a site's attention weights [N, H, T, S], for N layers."""
  batch = figure_input.observation.batch
  symbols = figure_input.observation.task.symbols
  key_ids = batch.inputs if site == "self" else batch.source
  key_indices = figure_input.drawn_tokens(figure_input.observation.keys(site))
  keys = symbols(np.asarray(key_ids)[0, key_indices])
  # Rows of the encoder and of a decoder-only model are labelled by the token
  # that they hold, as keys are; all others by the one that they must say.
  if site == "encoder":
    row_indices, rows, verb = key_indices, keys, "holds"
  else:
    row_indices, verb = figure_input.rows, "must say"
    row_ids = batch.target
    if batch.source is None:
      row_ids, verb = batch.inputs, "holds"
    rows = symbols(np.asarray(row_ids)[0, row_indices])
  weights = weights[:, :, row_indices][..., key_indices]
  layers, heads = weights.shape[:2]
  cell = 0.055 + 0.02 * max(map(len, keys))
  width, height = max(cell * len(keys), 1.1), max(cell * len(rows), 0.9)
  size = 1.1 + heads * (width + 0.12), 0.85 + layers * (height + 0.25)

  def draw(canvas: Canvas) -> None:
    margins = Margins(0.45, 0.6, 0.4, 0.45, 0.12, 0.25)
    axes = grid(canvas, layers, heads, margins)
    for (layer, head), axis in np.ndenumerate(axes):
      image = axis.imshow(
        weights[layer, head], cmap="Blues", vmin=0, vmax=1, aspect="auto"
      )
      axis.set_title(f"layer {layer} head {head}", fontsize=6, pad=2)
      columns = keys if layer == layers - 1 else []
      set_labels(axis, columns, rows if head == 0 else [])
      axis.spines[:].set_color("0.8")
    add_color_bar(canvas, image, margins, "attention weight")
    add_texts(
      canvas,
      f"{site}-attention on {figure_input.text}",
      "key: the token it holds",
      f"row: the token it {verb}",
    )

  return Page(name, size, draw)


# Projections.


class Bars(NamedTuple):
  """Bars describes a row of panels: a decoder row's residuals in one basis.

  Attributes:
    row: index of the decoder row.
    basis: one of BASES.
    label: the text left of the panels.
  """

  row: int
  basis: str
  label: str


def projections(data: FigureData) -> Iterator[Page]:
  """Yields pages of the residuals of `FigureInput.rows` in each basis, at most
  ROWS_PER_PAGE rows on a page."""
  for prefix, figure_input in data.named_inputs():
    rows, observation = figure_input.rows.tolist(), figure_input.observation
    for basis, vectors in BASES.items():
      title = f"projections on {vectors} ({basis} basis), {figure_input.text}"
      all_bars = [
        Bars(row, basis, _row_label(observation, row)) for row in rows
      ]
      for start in range(0, len(rows), ROWS_PER_PAGE):
        number = f"_{start}" if len(rows) > ROWS_PER_PAGE else ""
        name = f"{prefix}projections_{basis}{number}"
        bars = all_bars[start : start + ROWS_PER_PAGE]
        yield _projection_page(name, observation, bars, title, height=0.75)


def tokens(data: FigureData) -> Iterator[Page]:
  """Yields a page of projections for each of three positions of a sorting
  model: the median item in the list, `⊥`, and the median item in the output.

  They are those that the task hinting paper draws (figure 4.14).
  """
  for prefix, figure_input in data.named_inputs():
    observation = figure_input.observation
    # The inputs are the list, `⊥` and the sorted list.
    length, ids = observation.length, np.asarray(observation.batch.inputs[0])
    items, median_rank = ids[:length], (length - 1) // 2
    median = np.sort(items)[median_rank]
    positions = {
      "before": (int(np.argmax(items == median)), f"{median} before ⊥"),
      "delimiter": (length, "⊥"),
      "after": (length + 1 + median_rank, f"{median} after ⊥"),
    }
    for position, (row, text) in positions.items():
      if row < len(ids):  # the output of a single item is no input
        title = f"{text}, in {figure_input.text}: projections of the residual"
        bars = [
          Bars(row, basis, f"{basis}\nbasis")
          for basis, vectors in BASES.items()
        ]
        name = f"{prefix}token_{position}"
        yield _projection_page(name, observation, bars, title, height=1.5)


def _projection_page(
  name: str,
  observation: Observation,
  bars: list[Bars],
  title: str,
  height: float,
) -> Page:
  """Returns a page of residuals' inner products with the vectors of bases.

  There is a row of panels for each of `bars`, in the basis that it names, and a
  column for each layer and residual. Rows take `height` inches each, with the
  gaps between them.
  """
  layers = range(observation.num_layers)
  columns = [(layer, name) for layer in layers for name in RESIDUALS]
  width = min(max(0.055 * len(_alphabet(observation)), 1.3), 4.0)
  size = 0.8 + len(columns) * (width + 0.3), 0.95 + len(bars) * height

  def draw(canvas: Canvas) -> None:
    margins = Margins(0.8, 0.1, 0.4, 0.55, 0.3, 0.2 * height)
    axes = grid(canvas, len(bars), len(columns), margins)
    for (i, j), axis in np.ndenumerate(axes):
      (row, basis, label), (layer, residual_name) = bars[i], columns[j]
      residual = observation.residual(layer, residual_name)[0, row]
      _draw_bars(axis, observation, row, observation.project(residual, basis))
      if i < len(bars) - 1:
        axis.set_xticklabels([])
      if i == 0:
        words = residual_name.replace("_", " ").replace("mlp", "MLP")
        axis.set_title(f"layer {layer}, {words}", fontsize=7, pad=3)
      if j == 0:
        axis.set_ylabel(label, fontsize=6, rotation=0, ha="right", va="center")
    add_texts(canvas, title, f"token; {LEGEND}")

  return Page(name, size, draw)


def _draw_bars(
  axis: plt.Axes, observation: Observation, row: int, products: np.ndarray
) -> None:
  """Draws a row's inner products [V], as bars over the alphabet."""
  batch, ids = observation.batch, _alphabet(observation)
  input_id, target_id = int(batch.inputs[0, row]), int(batch.target[0, row])
  colors = {input_id: INPUT_COLOR}
  if batch.weight[0, row]:  # else this row's output is not scored
    is_same = input_id == target_id
    colors[target_id] = BOTH_COLOR if is_same else TARGET_COLOR
  bar_colors = [colors.get(i, "0.7") for i in ids]
  axis.bar(range(len(ids)), products[ids], color=bar_colors)
  axis.axhline(0, color="0.5", linewidth=0.4)
  step = next((step for step, limit in TICK_STEPS if len(ids) <= limit), 10)
  symbols = observation.task.symbols(ids)
  axis.set_xticks(range(0, len(ids), step), symbols[::step], fontsize=4.5)
  axis.tick_params(axis="x", length=1, pad=1)
  axis.tick_params(axis="y", labelsize=5, length=1, pad=1)
  axis.locator_params(axis="y", nbins=3)
  axis.set_xlim(-0.7, len(ids) - 0.3)
  axis.spines[["top", "right"]].set_visible(False)


def _row_label(observation: Observation, row: int) -> str:
  """Returns a row's label: its index, its input and, if it is scored, what it
  must say."""
  batch, symbols = observation.batch, observation.task.symbols
  (input_token,) = symbols(np.asarray(batch.inputs[0, [row]]))
  (target_token,) = symbols(np.asarray(batch.target[0, [row]]))
  suffix = f"\nsays {target_token}" if batch.weight[0, row] else ""
  return f"{row}: {input_token}{suffix}"


def _alphabet(observation: Observation) -> list[int]:
  """Returns the ids of the tokens that bars are drawn for.

  They are those that a list or a number is made of, and the marks among the
  inputs and targets of the batch's first example; never PAD.
  """
  task, batch = observation.task, observation.batch
  marks = {*batch.inputs[0].tolist(), *batch.target[0].tolist()}
  items = range(task.first_item, task.first_item + task.base)
  ids = range(len(observation.bases["encoder"]))
  return [i for i in ids if i != task.pad and (i in items or i in marks)]


# Bases.


def bases(data: FigureData) -> Iterator[Page]:
  """Yields a page of the norms of both bases' vectors, and their cosines, for
  the tokens that `_alphabet` returns."""
  observation = data.inputs[0].observation
  ids = _alphabet(observation)
  symbols = observation.task.symbols(ids)
  vectors = {
    basis: vectors[ids] for basis, vectors in observation.bases.items()
  }
  fontsize = 4.5
  if len(ids) >= 50:  # labels would overlap: every tenth has room
    symbols = [x if i % 10 == 0 else "" for i, x in enumerate(symbols)]

  def draw(canvas: Canvas) -> None:
    top, bottom = split(canvas, [1.75, 3.85], axis=0)
    axes = grid(top, 1, 2, Margins(0.6, 0.2, 0.3, 0.5, 0.6))[0]
    for axis, basis in zip(axes, BASES, strict=True):
      norms = np.linalg.norm(vectors[basis], axis=1)
      axis.bar(range(len(ids)), norms, color="0.5")
      set_labels(axis, symbols, fontsize=fontsize)
      axis.set_title(f"norms, {basis} basis ({BASES[basis]})", fontsize=7)
      axis.tick_params(axis="y", labelsize=6)
      axis.set_xlim(-0.7, len(ids) - 0.3)
    margins = Margins(0.4, 0.7, 0.4, 0.3, 0.5)
    pairs = ["encoder"] * 2, ["decoder"] * 2, ["encoder", "decoder"]
    axes = grid(bottom, 1, 3, margins)[0]
    for axis, (first, second) in zip(axes, pairs, strict=True):
      image = axis.imshow(
        cosines(vectors[first], vectors[second]), cmap="RdBu_r", vmin=-1, vmax=1
      )
      title = f"cosines, {first} (rows) with {second} (columns)"
      axis.set_title(title, fontsize=7)
      set_labels(axis, symbols, symbols, fontsize)
    add_color_bar(bottom, image, margins, "cosine")
    add_texts(canvas, "the vectors of both bases")

  yield Page("bases", (13.0, 5.6), draw)


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
  """Returns the cosines [V, W] between the vectors [V, D] and [W, D]."""
  unit = lambda x: x / np.maximum(np.linalg.norm(x, axis=1), 1e-9)[:, None]
  return unit(first) @ unit(second).T
