"""All figures; the one file that imports matplotlib."""

import pathlib

import matplotlib

matplotlib.use("Agg")

import numpy as np  # noqa: E402
from matplotlib import pyplot as plt  # noqa: E402


def accuracy_by_length(rows: list[dict], path, title: str) -> pathlib.Path:
  """EM against test length: a line per method (median of seeds), a band from
  the worst seed's lower bound to the best seed, one panel per test set."""
  rows = [row for row in rows if row["metric"] == "em"]
  sets = sorted({row["test_set"] for row in rows})
  methods = list(dict.fromkeys(_label(row) for row in rows))
  figure, axes = plt.subplots(
    1, len(sets), figsize=(1.5 + 4.2 * len(sets), 3.8), squeeze=False
  )
  for axis, test_set in zip(axes[0], sets, strict=True):
    for i, method in enumerate(methods):
      mine = [r for r in rows if _label(r) == method]
      mine = [r for r in mine if r["test_set"] == test_set]
      _band(axis, mine, method, f"C{i}", "os^vDPX*"[i % 8])
    train_length = rows[0]["train_length"]
    axis.axvline(train_length, color="0.6", linestyle=":", linewidth=1)
    axis.text(
      train_length,
      50,
      "longest trained",
      color="0.4",
      fontsize=8,
      rotation=90,
      horizontalalignment="right",
      verticalalignment="center",
    )
    axis.set_xscale("log")
    lengths = sorted({row["length"] for row in rows})
    axis.set_xticks(lengths, [str(n) for n in lengths])
    axis.minorticks_off()
    axis.set_ylim(-3, 103)
    unit = "items" if rows[0]["task"] == "sort" else "decimal digits"
    axis.set_xlabel(f"test length ({unit})")
    axis.set_title(f"test set: {test_set}", fontsize=10)
  axes[0][0].set_ylabel("exact match (%)")
  axes[0][-1].legend(
    fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False
  )
  figure.suptitle(title, fontsize=11)
  return _save(figure, path)


def accuracy_by_repetition(rows: list[dict], path, title: str):
  """EM against how often a few items are repeated: a line per method and
  length, medians of seeds. Rows are those of test sets `repeats_KxR`."""
  rows = [row for row in rows if row["metric"] == "em"]
  times = lambda row: int(row["test_set"].rpartition("x")[2])
  lines = list(dict.fromkeys((_label(row), row["length"]) for row in rows))
  figure, axis = plt.subplots(figsize=(6.5, 3.8))
  for i, (method, length) in enumerate(lines):
    mine = [r for r in rows if (_label(r), r["length"]) == (method, length)]
    x = sorted({times(row) for row in mine})
    y = [
      100 * np.median([r["value"] for r in mine if times(r) == n]) for n in x
    ]
    label = f"{method}, {length} items"
    axis.plot(x, y, marker="os^vDPX*"[i % 8], color=f"C{i}", label=label)
  ticks = sorted({times(row) for row in rows})
  axis.set_xscale("log")
  axis.set_xticks(ticks, [str(n) for n in ticks])
  axis.minorticks_off()
  axis.set_ylim(-3, 103)
  axis.set_xlabel("how often each of the repeated items occurs")
  axis.set_ylabel("exact match (%)")
  axis.legend(
    fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False
  )
  figure.suptitle(title, fontsize=11)
  return _save(figure, path)


def _label(row: dict) -> str:
  stage = "" if row["stage"] == "train" else f" ({row['stage']})"
  return row["method"] + stage


def _band(axis, rows, label: str, color: str, marker: str) -> None:
  lengths = sorted({row["length"] for row in rows})
  at = lambda n: [row for row in rows if row["length"] == n]
  median = [100 * np.median([r["value"] for r in at(n)]) for n in lengths]
  low = [100 * min(r["lower_bound"] for r in at(n)) for n in lengths]
  high = [100 * max(r["value"] for r in at(n)) for n in lengths]
  axis.plot(
    lengths,
    median,
    color=color,
    marker=marker,
    markersize=5,
    label=label,
    clip_on=False,
  )
  axis.fill_between(lengths, low, high, color=color, alpha=0.15, linewidth=0)


def matrices(values, path, title: str, columns=None, rows=None) -> pathlib.Path:
  """A grid of matrices [N, H, T, S], a row of panels per layer.

  Args:
    values: each panel is scaled to its own finite range; -inf stays white.
    path: where the PNG goes.
    title: above all panels.
    columns: labels of the S keys, if few enough to read.
    rows: labels of the T rows.
  """
  layers, heads, height, width = values.shape
  size = min(max(width / 11, 1.3), 4.0)
  figure, axes = plt.subplots(
    layers,
    heads,
    figsize=(size * heads + 0.4, (size * height / width + 0.45) * layers + 0.6),
    squeeze=False,
  )
  for n in range(layers):
    for h in range(heads):
      axis = axes[n][h]
      panel = np.where(np.isfinite(values[n, h]), values[n, h], np.nan)
      axis.imshow(panel, cmap="viridis", aspect="auto", **_range(panel))
      layer = f"layer {n} " if layers > 1 else ""
      axis.set_title(f"{layer}head {h}", fontsize=6, pad=2)
      _labels(axis.set_xticks, columns if n == layers - 1 else None)
      _labels(axis.set_yticks, rows if h == 0 else None)
      for side in axis.spines.values():
        side.set_color("0.7")
  figure.suptitle(title, fontsize=9)
  figure.supxlabel("key", fontsize=8)
  figure.supylabel("output row", fontsize=8)
  figure.tight_layout(rect=(0.01, 0.01, 1, 1))
  return _save(figure, path)


def _range(panel) -> dict:
  """Color range of one panel; a constant one is drawn in full color."""
  if np.isnan(panel).all():
    return {}
  low, high = np.nanmin(panel), np.nanmax(panel)
  return {"vmin": low - (1.0 if low == high else 0.0), "vmax": high}


def _labels(set_ticks, labels) -> None:
  if labels is None or len(labels) > 45:
    set_ticks([])
  else:
    set_ticks(range(len(labels)), labels, fontsize=4)


def _save(figure, path) -> pathlib.Path:
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=150, bbox_inches="tight")
  plt.close(figure)
  return path
