"""All figures; the one file that imports matplotlib."""

import pathlib

import matplotlib

matplotlib.use("Agg")

import numpy as np  # noqa: E402
from matplotlib import pyplot as plt  # noqa: E402

AXES = {"em": "exact match (%)", "edit": "edit distance (% of the output)"}
MARKERS = "os^vDPX*"
STYLES = ("-", "--", ":")  # after every ten colors


def by_length(rows: list[dict], path, title: str, metric: str = "em"):
  """EM or edit distance against test length: a line per method (median of
  seeds), a band from the worst seed (its lower bound, where there is one) to
  the best, one panel per test set."""
  rows = [row for row in rows if row["metric"] == metric]
  sets = sorted({row["test_set"] for row in rows})
  figure, axes = _panels(len(sets))
  unit = "items" if rows[0]["task"] == "sort" else "decimal digits"
  for axis, test_set in zip(axes, sets, strict=True):
    panel = [row for row in rows if row["test_set"] == test_set]
    _lines(axis, panel, rows, _label, lambda row: row["length"])
    train_length = rows[0]["train_length"]
    axis.axvline(train_length, color="0.6", linestyle=":", linewidth=1)
    axis.text(
      train_length,
      0.5,
      "longest trained",
      transform=axis.get_xaxis_transform(),
      color="0.4",
      fontsize=8,
      rotation=90,
      horizontalalignment="right",
      verticalalignment="center",
    )
    axis.set_xscale("log")
    _ticks(axis, [row["length"] for row in panel])
    axis.set_xlabel(f"test length ({unit})")
    axis.set_title(f"test set: {test_set}", fontsize=10)
  return _finish(figure, axes, title, path, metric)


def by_repetition(rows: list[dict], path, title: str, metric: str = "em"):
  """EM or edit distance against how often a few items are repeated: a line per
  method and length, median of seeds. Rows are those of test sets
  `repeats_KxR`."""
  rows = [row for row in rows if row["metric"] == metric]
  times = lambda row: int(row["test_set"].split()[0].rpartition("x")[2])
  figure, axes = _panels(1)
  label = lambda row: f"{_label(row)}, {row['length']} items"
  _lines(axes[0], rows, rows, label, times)
  axes[0].set_xscale("log")
  _ticks(axes[0], [times(row) for row in rows])
  axes[0].set_xlabel("how often each of the repeated items occurs")
  return _finish(figure, axes, title, path, metric)


def by_field(rows: list[dict], path, title: str, field: str):
  """EM against a config field, which rows hold by its name: a line per method,
  median of seeds, one panel per test length."""
  rows = [row for row in rows if row["metric"] == "em"]
  lengths = sorted({row["length"] for row in rows})
  figure, axes = _panels(len(lengths))
  for axis, length in zip(axes, lengths, strict=True):
    panel = [row for row in rows if row["length"] == length]
    _lines(axis, panel, rows, _label, lambda row: row[field])
    values = [row[field] for row in rows]
    if 0 < 10 * min(values) < max(values):
      axis.set_xscale("log")
    _ticks(axis, values)
    axis.set_xlabel(field)
    axis.set_title(f"test length: {length}", fontsize=10)
  return _finish(figure, axes, title, path)


def _panels(count: int):
  size = (1.5 + 4.2 * count, 3.8)
  figure, axes = plt.subplots(1, count, figsize=size, squeeze=False)
  return figure, axes[0]


def _lines(axis, panel, rows, label, place) -> None:
  """A line for each label of `rows`: values of a panel's rows by `place`."""
  for i, name in enumerate(dict.fromkeys(map(label, rows))):
    mine = [row for row in panel if label(row) == name]
    x = sorted({place(row) for row in mine})
    at = [[row for row in mine if place(row) == n] for n in x]
    median = [100 * np.median([r["value"] for r in there]) for there in at]
    low = [100 * min(_worst(r) for r in there) for there in at]
    high = [100 * max(r["value"] for r in there) for there in at]
    marker = MARKERS[i % len(MARKERS)]
    axis.plot(
      x,
      median,
      color=f"C{i % 10}",
      linestyle=STYLES[i // 10 % len(STYLES)],
      marker=marker,
      markersize=5,
      label=name,
      clip_on=False,
    )
    axis.fill_between(x, low, high, color=f"C{i % 10}", alpha=0.15, linewidth=0)


def _worst(row: dict) -> float:
  bound = row["lower_bound"]
  return row["value"] if bound is None else bound


def _ticks(axis, values) -> None:
  values = sorted(set(values))
  axis.set_xticks(values, [f"{n:g}" for n in values])
  axis.minorticks_off()


def _finish(figure, axes, title: str, path, metric: str = "em"):
  for axis in axes:
    axis.set_ylim(*((-3, 103) if metric == "em" else (0, None)))
  axes[0].set_ylabel(AXES[metric])
  axes[-1].legend(
    fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False
  )
  figure.suptitle(title, fontsize=11)
  return _save(figure, path)


def _label(row: dict) -> str:
  stage = "" if row["stage"] == "train" else f" ({row['stage']})"
  return row["method"] + stage


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
