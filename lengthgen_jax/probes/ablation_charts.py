"""Charts of what a model loses by knocking out heads, lines or residuals.

Every chart has a function that returns its size in inches and one that draws it
on a canvas of that size.
"""

import numpy as np

from lengthgen_jax.drawing import grid, plt, scale, title


def of_metric(rows: list[dict], metric: str, **fields) -> list[dict]:
  """Returns the rows of a metric whose fields have the given values."""
  return [
    row
    for row in rows
    if row["metric"] == metric
    and all(row[name] == value for name, value in fields.items())
  ]


def where(row: dict) -> str:
  """Returns the words for a row's place in the model, its layer and part."""
  layer = "" if row["layer"] is None else f"layer {row['layer']} "
  part = (row["part"] or "").replace("_", " ").replace("mlp", "MLP")
  return layer + part


# Knocked-out heads and lines.


def _table(
  axis: plt.Axes, values: np.ndarray, rows: list[str], columns: list[str]
) -> None:
  """Draws exact match in %, one number per cell; cells of NaN stay empty."""
  axis.imshow(values, cmap="RdYlGn", vmin=0, vmax=1, aspect="auto", alpha=0.75)
  for (row, column), value in np.ndenumerate(values):
    if np.isfinite(value):
      axis.text(
        column, row, f"{100 * value:.0f}", fontsize=6, ha="center", va="center"
      )
  axis.set_xticks(range(len(columns)), columns, fontsize=6)
  axis.set_yticks(range(len(rows)), rows, fontsize=6)
  axis.tick_params(length=1, pad=2)


def heads_size(rows: list[dict]) -> tuple[float, float]:
  """Returns the size in inches of the chart of `heads`."""
  places = {where(row) for row in rows}
  heads = 1 + max(row["head"] for row in rows)
  return 1.5 + 0.42 * max(heads, 6), 0.95 + 0.24 * len(places)


def heads(
  canvas: plt.FigureBase,
  size: tuple[float, float],
  rows: list[dict],
  intact: dict,
) -> None:
  """Draws exact match without each head, in a table [places, heads].

  Args:
    canvas, size: where to draw, and its size in inches.
    rows: of the metric "without_head", of one seed and length.
    intact: the row of the model as it is.
  """
  places = list(dict.fromkeys(map(where, rows)))
  values = np.full((len(places), 1 + max(row["head"] for row in rows)), np.nan)
  for row in rows:
    values[places.index(where(row)), row["head"]] = row["value"]
  ((axis,),) = grid(canvas, 1, 1, size, (1.2, 0.2, 0.4, 0.5))
  _table(axis, values, places, [f"{h}" for h in range(values.shape[1])])
  axis.set_xlabel("head", fontsize=7)
  title(canvas, size, f"EM (%) without each head{_of(intact)}")


def _of(intact: dict) -> str:
  """Returns the words for the intact model that a chart compares with."""
  return (
    f", {intact['length']} {intact['unit']}"
    f" (intact {100 * intact['value']:.1f}), seed {intact['seed']}"
  )


def lines_size(rows: list[dict]) -> tuple[float, float]:
  """Returns the size in inches of the chart of `lines`."""
  kinds, heads = _line_kinds(rows)
  return 3.1 + 0.42 * (heads + 1), 1.15 + 0.2 * len(kinds)


def _line_kinds(rows: list[dict]) -> tuple[list[tuple[str, str]], int]:
  """Returns (place, line) of every line, and the number of heads."""
  kinds = dict.fromkeys((where(row), row["line"]) for row in rows)
  kinds = sorted(kinds, key=lambda kind: not kind[0].startswith("layer"))
  heads = 1 + max((row["head"] or 0) for row in rows)
  return kinds, heads


def lines(
  canvas: plt.FigureBase,
  size: tuple[float, float],
  rows: list[dict],
  enough: list[dict],
  intact: dict,
) -> None:
  """Draws exact match without each line of the bias.

  A line is closed in each head, in all heads of its layer and everywhere. A
  frame stands around the lines that are enough together.

  Args:
    canvas, size: where to draw, and its size in inches.
    rows: of the metric "without_line", of one seed and length.
    enough: rows of the metric "enough_lines", of the same.
    intact: the row of the model as it is.
  """
  row_kinds, heads = _line_kinds(rows)
  values = np.full((len(row_kinds), heads + 1), np.nan)
  cell = lambda row: (
    row_kinds.index((where(row), row["line"])),
    heads if row["head"] is None else row["head"],
  )
  for row in rows:
    values[cell(row)] = row["value"]
  ((axis,),) = grid(canvas, 1, 1, size, (2.8, 0.2, 0.55, 0.5))
  row_labels = [
    f"{place if place.startswith('layer') else 'all layers ' + place}: {words}"
    for place, words in row_kinds
  ]
  columns = [*map(str, range(heads)), "all"]
  _table(axis, values, row_labels, columns)
  for row in enough:
    row_index, column = cell(row)
    frame = {"fill": False, "edgecolor": "black", "linewidth": 1.3}
    axis.add_patch(
      type(axis.patch)((column - 0.47, row_index - 0.45), 0.94, 0.9, **frame)
    )
  text = "head"
  if enough:
    text += f" (framed: {len(enough)} lines that are enough together)"
  axis.set_xlabel(text, fontsize=7)
  title(canvas, size, f"EM (%) without each line{_of(intact)}")


# Patching.

# Of more rows or outputs than these, only those that patching changes are
# drawn.
MANY = 40


def maps(rows: list[dict], intact: dict) -> tuple[list[tuple], np.ndarray]:
  """Returns, for every patched place, how often each output is still right.

  Args:
    rows: of the metric "patched", of one seed and length; each is of one row of
      the model whose residual was replaced by that of another input.
    intact: the row of the model as it is.

  Returns:
    A list of (title, part, row numbers, values [rows, outputs]), and the
    numbers of the outputs that are drawn.
  """
  intact_rates, place_maps = np.array(intact["by_position"]), []
  parts = dict.fromkeys((row["part"], row["layer"]) for row in rows)
  for part, layer in parts:
    entries = of_metric(rows, "patched", part=part, layer=layer)
    values = np.array([row["by_position"] for row in entries])
    place_maps.append((where(entries[0]), part, values))
  differs = [values < intact_rates for _, _, values in place_maps]
  outputs = np.arange(len(intact_rates))
  if len(outputs) > MANY:
    outputs = np.flatnonzero(np.concatenate(differs).any(axis=0))
  shown_maps = []
  for (label, part, values), entries in zip(place_maps, differs, strict=True):
    is_shown = entries.any(axis=1) | (len(values) <= MANY)
    shown_maps.append(
      (label, part, np.flatnonzero(is_shown), values[is_shown][:, outputs])
    )
  return shown_maps, outputs


def patches_size(rows: list[dict], intact: dict) -> tuple[float, float]:
  """Returns the size in inches of the chart of `patches`."""
  shown_maps, outputs = maps(rows, intact)
  width = max(0.1 * len(outputs), 1.2)
  height = max(1.4, *(0.1 * len(numbers) for _, _, numbers, _ in shown_maps))
  return 0.9 + len(shown_maps) * (width + 0.5), 0.95 + height


def patches(
  canvas: plt.FigureBase,
  size: tuple[float, float],
  rows: list[dict],
  names: dict[str | None, list[str]],
  intact: dict,
) -> None:
  """Draws which outputs a residual matters for, a panel per patched place.

  Args:
    canvas, size: where to draw, and its size in inches.
    rows: of the metric "patched", of one seed and length.
    names: labels of the rows of "source", of all others (None), and of
      "outputs".
    intact: the row of the model as it is.
  """
  shown_maps, outputs = maps(rows, intact)
  labels = [names["outputs"][t] for t in outputs]
  margins, gaps = (0.4, 0.5, 0.45, 0.65), (0.5, 0.1)
  axes = grid(canvas, 1, len(shown_maps), size, margins, gaps)[0]
  for axis, (text, part, numbers, values) in zip(axes, shown_maps, strict=True):
    image = axis.imshow(values, cmap="Blues_r", vmin=0, vmax=1, aspect="auto")
    axis.set_title(text, fontsize=7, pad=3)
    row_labels = [names.get(part, names[None])[row] for row in numbers]
    axis.set_yticks(range(len(row_labels)), row_labels, fontsize=4.5)
    axis.set_xticks(range(len(labels)), labels, fontsize=4.5)
    axis.tick_params(length=1, pad=1)
    axis.tick_params(axis="x", rotation=90)
  scale(canvas, size, image, (*margins[:3], 0.65), "share still right")
  canvas.supxlabel("output", fontsize=7, y=0.04 / size[1], va="bottom")
  canvas.supylabel("row that is another input's", fontsize=7, x=0.04 / size[0])
  text = "how often outputs are right with one residual of another input"
  title(canvas, size, text + _of(intact))
