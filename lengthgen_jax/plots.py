"""Figures of biases, attention weights, margins and precision.

Every function draws one figure from arrays or rows that it is given.
"""

import pathlib
from collections.abc import Callable

import numpy as np

from lengthgen_jax.drawing import plt, save

WIDEST = 14.0  # inches of panels side by side


def matrices(
  values: np.ndarray,
  path: pathlib.Path | str,
  title: str,
  columns: list[str] | None = None,
  rows: list[str] | None = None,
) -> pathlib.Path:
  """Draws a grid of matrices [N, H, T, S], with a row of panels per layer.

  Heads of a single layer stand in rows of four where that divides them.

  Args:
    values: each panel is scaled to its own finite range; -inf stays white.
    path: where the PNG goes.
    title: stands above all panels.
    columns: labels of the S keys, drawn if they are few enough to read.
    rows: labels of the T rows.

  Returns:
    The path of the PNG.
  """
  layers, heads, height, width = values.shape
  panels_per_row = 4 if layers == 1 and heads % 4 == 0 else heads
  panel_rows = layers * heads // panels_per_row
  panel_size = min(max(width / 11, 1.3), 4.0, WIDEST / panels_per_row)
  figure, axes = plt.subplots(
    panel_rows,
    panels_per_row,
    figsize=(
      panel_size * panels_per_row + 0.4,
      (panel_size * height / width + 0.45) * panel_rows + 0.6,
    ),
    squeeze=False,
  )
  for axis, (layer, head) in zip(
    axes.flat, np.ndindex(layers, heads), strict=True
  ):
    panel = np.where(
      np.isfinite(values[layer, head]), values[layer, head], np.nan
    )
    axis.imshow(panel, cmap="viridis", aspect="auto", **_range(panel))
    prefix = f"layer {layer} " if layers > 1 else ""
    axis.set_title(f"{prefix}head {head}", fontsize=6, pad=2)
    cell = axis.get_subplotspec()
    tick_labels = columns if cell.is_last_row() else None
    is_upright = all(len(label) < 2 for label in tick_labels or ())
    _labels(axis.set_xticks, tick_labels, 0 if is_upright else 90)
    _labels(axis.set_yticks, rows if cell.is_first_col() else None)
    axis.spines[:].set_color("0.7")
  figure.suptitle(title, fontsize=9)
  figure.supxlabel("key", fontsize=8)
  figure.supylabel("output row", fontsize=8)
  figure.tight_layout(rect=(0.02, 0.01, 1, 1))
  return save(figure, path)


def longest_by_bits(
  rows: list[dict], path: pathlib.Path | str, title: str
) -> pathlib.Path:
  """Draws the longest lists that are sorted, against bits of precision.

  The model is the construction of Theorem 5.1, and the bits are the significant
  ones of its parameters and activations.

  Args:
    rows: those of `precision.longest_lists`.
    path: where the PNG goes.
    title: stands above the axes.

  Returns:
    The path of the PNG.
  """
  figure, axis = plt.subplots(figsize=(5.5, 3.8))
  for copies, marker in (("difference", "o"), ("share", "s")):
    series = [row for row in rows if row["copies"] == copies]
    bits, longest = (
      [row[field] for row in series] for field in ("bits", "longest")
    )
    label = "copies left: " + copies
    axis.plot(bits, longest, marker=marker, markersize=5, label=label)
  bits = np.array(sorted({row["bits"] for row in rows}))
  label = "(2^bits + 2) / 4"
  axis.plot(bits, (2.0**bits + 2) / 4, ":", color="0.5", label=label)
  longest_tried = max(row["tried"] for row in rows)
  axis.axhline(longest_tried, color="0.8", linewidth=1, label="longest tried")
  axis.set_yscale("log", base=2)
  axis.set_ylim(0.7, 2 * longest_tried)
  axis.set_xticks(bits)
  axis.set_xlabel("significant bits of parameters and activations")
  axis.set_ylabel("longest lists sorted (items)")
  axis.legend(fontsize=8)
  figure.suptitle(title, fontsize=10)
  figure.tight_layout()
  return save(figure, path)


def _range(panel: np.ndarray) -> dict:
  """Returns the color range of a panel; a constant one gets full color."""
  if np.isnan(panel).all():
    return {}
  low, high = np.nanmin(panel), np.nanmax(panel)
  return {"vmin": low - (1.0 if low == high else 0.0), "vmax": high}


def _labels(
  set_ticks: Callable, labels: list[str] | None, rotation: int = 0
) -> None:
  """Sets the labels of ticks, or none if they are too many to read."""
  if labels is None or len(labels) > 45:
    labels = []
  set_ticks(range(len(labels)), labels, fontsize=4, rotation=rotation)


def labels(experiment, site: str, keys) -> list[str]:
  """Returns a label for every key, by the segment it stands in and its offset.

  Labels are like "a", "a4", "b1" (counted from the right end), "x1" for the
  first item of a list and "y1" for the first output; a segment's mark has no
  number.

  Args:
    experiment: says what the segments of a site are called.
    site: an attention site.
    keys: Coordinates of the keys.
  """
  names = {"start": "^", "target": "y", "items": "x", "pairs": "p", "": ""}
  task, texts = experiment.task, []
  for segment, left, right in zip(
    np.asarray(keys.segment[0]),
    np.asarray(keys.left[0, :, 0]),
    np.asarray(keys.right[0, :, 0]),
    strict=True,
  ):
    name = experiment.site_segments[site][segment]
    from_left = name == "target" or not task.of_digits
    is_mark = segment < 0 or name == "start" or left == 0 and not from_left
    number = left + 1 if from_left else right + 1
    texts.append(names.get(name, name) + ("" if is_mark else str(number)))
  return texts


def margins(
  certificates: dict[str, dict],
  edges: np.ndarray,
  path: pathlib.Path | str,
  title: str,
) -> pathlib.Path:
  """Draws histograms of how many cases have which margin, a panel per seed.

  Args:
    certificates: by seed, each with "views" that have a "histogram" by edges.
    edges: the histogram's; the first and the last are infinite.
    path: where the PNG goes.
    title: stands above all panels.

  Returns:
    The path of the PNG.
  """
  certificates = {
    s: certificate
    for s, certificate in certificates.items()
    if certificate["views"]
  }
  panels = len(certificates)
  figure, axes = plt.subplots(
    panels, 1, figsize=(6, 1.9 * panels + 0.8), sharex=True, squeeze=False
  )
  left_edges = np.concatenate([[edges[1] - 1], edges[1:-1]])
  for axis, (seed, certificate) in zip(
    axes[:, 0], certificates.items(), strict=True
  ):
    counts = np.sum(
      [view["histogram"] for view in certificate["views"]], axis=0
    )
    is_wrong = left_edges < 0
    widths = np.diff(np.append(left_edges, left_edges[-1] + 1))
    for is_part, color in ((is_wrong, "tab:red"), (~is_wrong, "tab:blue")):
      axis.bar(
        left_edges[is_part],
        counts[is_part],
        widths[is_part],
        align="edge",
        color=color,
      )
    axis.set_yscale("log")
    axis.set_ylim(bottom=0.5)
    axis.set_ylabel("cases")
    axis.set_title(f"seed {seed}: {certificate['verdict']}", fontsize=7)
  occupied = np.flatnonzero(
    np.sum(
      [v["histogram"] for c in certificates.values() for v in c["views"]], 0
    )
  )
  axes[0, 0].set_xlim(left_edges[occupied[0]] - 1, left_edges[occupied[-1]] + 2)
  axes[-1, 0].set_xlabel("margin: right logit - best wrong one")
  figure.suptitle(title, fontsize=9)
  figure.tight_layout()
  return save(figure, path)
