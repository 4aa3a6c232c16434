"""Figures of what is inside a model: pure functions of arrays."""

import pathlib

import numpy as np

from lengthgen_jax.drawing import plt, save

WIDEST = 14.0  # inches of panels side by side


def matrices(values, path, title: str, columns=None, rows=None) -> pathlib.Path:
  """A grid of matrices [N, H, T, S], a row of panels per layer; of one layer,
  in rows of four.

  Args:
    values: each panel is scaled to its own finite range; -inf stays white.
    path: where the PNG goes.
    title: above all panels.
    columns: labels of the S keys, if few enough to read.
    rows: labels of the T rows.
  """
  layers, heads, height, width = values.shape
  across = 4 if layers == 1 and heads % 4 == 0 else heads
  lines = layers * heads // across
  size = min(max(width / 11, 1.3), 4.0, WIDEST / across)
  figure, axes = plt.subplots(
    lines,
    across,
    figsize=(
      size * across + 0.4,
      (size * height / width + 0.45) * lines + 0.6,
    ),
    squeeze=False,
  )
  for axis, (n, h) in zip(axes.flat, np.ndindex(layers, heads), strict=True):
    panel = np.where(np.isfinite(values[n, h]), values[n, h], np.nan)
    axis.imshow(panel, cmap="viridis", aspect="auto", **_range(panel))
    layer = f"layer {n} " if layers > 1 else ""
    axis.set_title(f"{layer}head {h}", fontsize=6, pad=2)
    place = axis.get_subplotspec()
    below = columns if place.is_last_row() else None
    upright = all(len(label) < 2 for label in below or ())
    _labels(axis.set_xticks, below, 0 if upright else 90)
    _labels(axis.set_yticks, rows if place.is_first_col() else None)
    axis.spines[:].set_color("0.7")
  figure.suptitle(title, fontsize=9)
  figure.supxlabel("key", fontsize=8)
  figure.supylabel("output row", fontsize=8)
  figure.tight_layout(rect=(0.02, 0.01, 1, 1))
  return save(figure, path)


def longest_by_bits(rows: list[dict], path, title: str) -> pathlib.Path:
  """The longest lists that Theorem 5.1's construction sorts against the
  significant bits of its numbers; rows are those of `precision.rows`."""
  figure, axis = plt.subplots(figsize=(5.5, 3.8))
  for copies, marker in (("difference", "o"), ("share", "s")):
    own = [row for row in rows if row["copies"] == copies]
    bits, longest = ([row[n] for row in own] for n in ("bits", "longest"))
    label = "copies left: " + copies
    axis.plot(bits, longest, marker=marker, markersize=5, label=label)
  bits = np.array(sorted({row["bits"] for row in rows}))
  label = "(2^bits + 2) / 4"
  axis.plot(bits, (2.0**bits + 2) / 4, ":", color="0.5", label=label)
  most = max(row["tried"] for row in rows)
  axis.axhline(most, color="0.8", linewidth=1, label="longest tried")
  axis.set_yscale("log", base=2)
  axis.set_ylim(0.7, 2 * most)
  axis.set_xticks(bits)
  axis.set_xlabel("significant bits of parameters and activations")
  axis.set_ylabel("longest lists sorted (items)")
  axis.legend(fontsize=8)
  figure.suptitle(title, fontsize=10)
  figure.tight_layout()
  return save(figure, path)


def _range(panel) -> dict:
  """Color range of one panel; a constant one is drawn in full color."""
  if np.isnan(panel).all():
    return {}
  low, high = np.nanmin(panel), np.nanmax(panel)
  return {"vmin": low - (1.0 if low == high else 0.0), "vmax": high}


def _labels(set_ticks, labels, rotation=0) -> None:
  if labels is None or len(labels) > 45:
    labels = []
  set_ticks(range(len(labels)), labels, fontsize=4, rotation=rotation)


def labels(experiment, site: str, keys) -> list[str]:
  """What stands at every key, like "a", "a4", "b1" (counted from the right
  end), "x1" for the first item of a list and "y1" for the first output; a
  segment's mark has no number."""
  names = {"start": "^", "target": "y", "items": "x", "pairs": "p", "": ""}
  task, found = experiment.task, []
  for segment, left, right in zip(
    np.asarray(keys.segment[0]),
    np.asarray(keys.left[0, :, 0]),
    np.asarray(keys.right[0, :, 0]),
    strict=True,
  ):
    name = experiment.site_segments[site][segment]
    from_left = name == "target" or not task.of_digits
    mark = segment < 0 or name == "start" or left == 0 and not from_left
    number = left + 1 if from_left else right + 1
    found.append(names.get(name, name) + ("" if mark else str(number)))
  return found


def margins(certificates: dict, edges, path, title: str) -> pathlib.Path:
  """How many cases have which margin, a panel per seed.

  Args:
    certificates: by seed, each with "views" that have a "histogram" by edges.
    edges: the histogram's; the first and the last are infinite.
    path: where the PNG goes.
    title: above all panels.
  """
  certificates = {s: own for s, own in certificates.items() if own["views"]}
  count = len(certificates)
  figure, axes = plt.subplots(
    count, 1, figsize=(6, 1.9 * count + 0.8), sharex=True, squeeze=False
  )
  left = np.concatenate([[edges[1] - 1], edges[1:-1]])
  for axis, (seed, own) in zip(axes[:, 0], certificates.items(), strict=True):
    total = np.sum([view["histogram"] for view in own["views"]], axis=0)
    wrong = left < 0
    width = np.diff(np.append(left, left[-1] + 1))
    for part, color in ((wrong, "tab:red"), (~wrong, "tab:blue")):
      axis.bar(left[part], total[part], width[part], align="edge", color=color)
    axis.set_yscale("log")
    axis.set_ylim(bottom=0.5)
    axis.set_ylabel("cases")
    axis.set_title(f"seed {seed}: {own['verdict']}", fontsize=7)
  shown = np.flatnonzero(
    np.sum(
      [v["histogram"] for c in certificates.values() for v in c["views"]], 0
    )
  )
  axes[0, 0].set_xlim(left[shown[0]] - 1, left[shown[-1]] + 2)
  axes[-1, 0].set_xlabel("margin: right logit - best wrong one")
  figure.suptitle(title, fontsize=9)
  figure.tight_layout()
  return save(figure, path)
