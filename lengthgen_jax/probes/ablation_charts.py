"""Charts of what is necessary in a model, each on a canvas of a given size."""

import numpy as np

from lengthgen_jax.drawing import grid, scale, title


def of_metric(rows: list[dict], metric: str, **fields) -> list[dict]:
  """Rows of a metric, and of some fields' values."""
  return [
    row
    for row in rows
    if row["metric"] == metric
    and all(row[name] == value for name, value in fields.items())
  ]


def where(row: dict) -> str:
  """Part and layer of a row in words."""
  layer = "" if row["layer"] is None else f"layer {row['layer']} "
  part = (row["part"] or "").replace("_", " ").replace("mlp", "MLP")
  return layer + part


# What is necessary.


def _table(axis, values, rows, columns) -> None:
  """Exact match in %, a cell each; empty where there is nothing."""
  axis.imshow(values, cmap="RdYlGn", vmin=0, vmax=1, aspect="auto", alpha=0.75)
  for (r, c), value in np.ndenumerate(values):
    if np.isfinite(value):
      axis.text(
        c, r, f"{100 * value:.0f}", fontsize=6, ha="center", va="center"
      )
  axis.set_xticks(range(len(columns)), columns, fontsize=6)
  axis.set_yticks(range(len(rows)), rows, fontsize=6)
  axis.tick_params(length=1, pad=2)


def heads_size(rows: list[dict]) -> tuple:
  kinds = {where(row) for row in rows}
  heads = 1 + max(row["head"] for row in rows)
  return 1.5 + 0.42 * max(heads, 6), 0.95 + 0.24 * len(kinds)


def heads(canvas, size, rows: list[dict], intact: dict) -> None:
  """Exact match without each head; rows are of one seed and length."""
  kinds = list(dict.fromkeys(map(where, rows)))
  values = np.full((len(kinds), 1 + max(row["head"] for row in rows)), np.nan)
  for row in rows:
    values[kinds.index(where(row)), row["head"]] = row["value"]
  ((axis,),) = grid(canvas, 1, 1, size, (1.2, 0.2, 0.4, 0.5))
  _table(axis, values, kinds, [f"{h}" for h in range(values.shape[1])])
  axis.set_xlabel("head", fontsize=7)
  title(canvas, size, f"EM (%) without each head{_of(intact)}")


def _of(intact: dict) -> str:
  return (
    f", {intact['length']} {intact['unit']}"
    f" (intact {100 * intact['value']:.1f}), seed {intact['seed']}"
  )


def lines_size(rows: list[dict]) -> tuple:
  kinds, heads = _line_kinds(rows)
  return 3.1 + 0.42 * (heads + 1), 1.15 + 0.2 * len(kinds)


def _line_kinds(rows: list[dict]):
  """Lines by layer, and how many heads there are."""
  kinds = dict.fromkeys((where(row), row["line"]) for row in rows)
  kinds = sorted(kinds, key=lambda kind: not kind[0].startswith("layer"))
  heads = 1 + max((row["head"] or 0) for row in rows)
  return kinds, heads


def lines(canvas, size, rows: list[dict], enough: list[dict], intact: dict):
  """Exact match without each line, in each head, in all heads of its layer and
  everywhere; a frame around those that are enough together. Rows are of one
  seed and length."""
  kinds, count = _line_kinds(rows)
  values = np.full((len(kinds), count + 1), np.nan)
  cell = lambda row: (
    kinds.index((where(row), row["line"])),
    count if row["head"] is None else row["head"],
  )
  for row in rows:
    values[cell(row)] = row["value"]
  ((axis,),) = grid(canvas, 1, 1, size, (2.8, 0.2, 0.55, 0.5))
  names = [
    f"{place if place.startswith('layer') else 'all layers ' + place}: {words}"
    for place, words in kinds
  ]
  columns = [*map(str, range(count)), "all"]
  _table(axis, values, names, columns)
  for row in enough:
    r, c = cell(row)
    frame = {"fill": False, "edgecolor": "black", "linewidth": 1.3}
    axis.add_patch(type(axis.patch)((c - 0.47, r - 0.45), 0.94, 0.9, **frame))
  text = "head"
  if enough:
    text += f" (framed: {len(enough)} lines that are enough together)"
  axis.set_xlabel(text, fontsize=7)
  title(canvas, size, f"EM (%) without each line{_of(intact)}")


# Patching.

MANY = 40  # rows or outputs beyond which those that matter for nothing are cut


def maps(rows: list[dict], intact: dict) -> tuple:
  """Of every place, how often each output is right with a row of another
  input: ([(title, part, row numbers, values [rows, outputs])], outputs)."""
  whole, found = np.array(intact["by_position"]), []
  parts = dict.fromkeys((row["part"], row["layer"]) for row in rows)
  for part, layer in parts:
    own = of_metric(rows, "patched", part=part, layer=layer)
    values = np.array([row["by_position"] for row in own])
    found.append((where(own[0]), part, values))
  matters = [values < whole for _, _, values in found]
  outputs = np.arange(len(whole))
  if len(outputs) > MANY:
    outputs = np.flatnonzero(np.concatenate(matters).any(axis=0))
  shown = []
  for (words, part, values), own in zip(found, matters, strict=True):
    kept = own.any(axis=1) | (len(values) <= MANY)
    shown.append((words, part, np.flatnonzero(kept), values[kept][:, outputs]))
  return shown, outputs


def patches_size(rows: list[dict], intact: dict) -> tuple:
  shown, outputs = maps(rows, intact)
  wide = max(0.1 * len(outputs), 1.2)
  high = max(1.4, *(0.1 * len(numbers) for _, _, numbers, _ in shown))
  return 0.9 + len(shown) * (wide + 0.5), 0.95 + high


def patches(canvas, size, rows: list[dict], names: dict, intact: dict) -> None:
  """Which outputs a residual matters for.

  Args:
    canvas, size: to draw on.
    rows: of one seed and length.
    names: of the rows of "source", of all others (None), and of "outputs".
    intact: the row of the model as it is.
  """
  shown, outputs = maps(rows, intact)
  labels = [names["outputs"][t] for t in outputs]
  margins, gaps = (0.4, 0.5, 0.45, 0.65), (0.5, 0.1)
  axes = grid(canvas, 1, len(shown), size, margins, gaps)[0]
  for axis, (words, part, numbers, values) in zip(axes, shown, strict=True):
    image = axis.imshow(values, cmap="Blues_r", vmin=0, vmax=1, aspect="auto")
    axis.set_title(words, fontsize=7, pad=3)
    own = [names.get(part, names[None])[row] for row in numbers]
    axis.set_yticks(range(len(own)), own, fontsize=4.5)
    axis.set_xticks(range(len(labels)), labels, fontsize=4.5)
    axis.tick_params(length=1, pad=1)
    axis.tick_params(axis="x", rotation=90)
  scale(canvas, size, image, (*margins[:3], 0.65), "share still right")
  canvas.supxlabel("output", fontsize=7, y=0.04 / size[1], va="bottom")
  canvas.supylabel("row that is another input's", fontsize=7, x=0.04 / size[0])
  words = "how often outputs are right with one residual of another input"
  title(canvas, size, words + _of(intact))
