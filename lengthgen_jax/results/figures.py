"""Figures of result rows."""

import pathlib

import numpy as np

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.results import schema

AXES = {"em": "exact match (%)", "edit": "edit distance (% of the output)"}
MARKERS = "os^vDPX*"
STYLES = ("-", "--", ":")  # after every ten colors


def by_length(rows: list[dict], path, title: str, metric: str = "em"):
  """EM or edit distance against test length: a line per method and conditions
  (median of seeds), a band from the worst seed (its lower bound, where there
  is one) to the best, one panel per test set."""
  rows = schema.of_metric(rows, metric)
  sets = sorted({row["test_set"] for row in rows})
  groups = schema.groups(rows, along=("test_set", "length"))
  figure, axes = _panels(len(sets))
  for axis, test_set in zip(axes, sets, strict=True):
    panel = _lines(axis, groups, "length", test_set=test_set)
    for train_length in {row["train_length"] for row in panel}:
      _mark(axis, train_length, "longest trained")
    axis.set_xscale("log")
    _ticks(axis, [row["length"] for row in panel])
    axis.set_xlabel(f"test length ({_unit(panel)})")
    axis.set_title(f"test set: {test_set}", fontsize=10)
  return _finish(figure, axes, title, path, metric)


def by_repetition(rows: list[dict], path, title: str, metric: str = "em"):
  """EM or edit distance against how often a few items are repeated: a line per
  method, conditions and length, median of seeds. Rows are those of test sets
  `repeats_KxR`."""
  apart = []
  for row in schema.of_metric(rows, metric):
    test_set, _, times = row["test_set"].rpartition("x")
    method = f"{row['method']}, {row['length']} {row['unit']}"
    held = {"test_set": test_set, "times": int(times), "method": method}
    apart.append(row | held)
  figure, axes = _panels(1)
  _lines(axes[0], schema.groups(apart, along=("times",)), "times")
  axes[0].set_xscale("log")
  _ticks(axes[0], [row["times"] for row in apart])
  axes[0].set_xlabel("how often each of the repeated items occurs")
  return _finish(figure, axes, title, path, metric)


# Conditions that another value of a config field brings with it.
BY_CONFIG = ("run", "config_hash", "step", "slack", "train_length")
BY_CONFIG += ("train_data",)


def by_field(rows: list[dict], path, title: str, field: str):
  """EM against a config field, which rows hold by its name: a line per method
  and conditions, median of a run's seeds, one panel per test length."""
  rows = schema.of_metric(rows, "em")
  lengths = sorted({row["length"] for row in rows})
  groups = schema.groups(rows, (field, "length"), ("bits", *BY_CONFIG))
  values = [row[field] for row in rows]
  figure, axes = _panels(len(lengths))
  for axis, length in zip(axes, lengths, strict=True):
    panel = _lines(axis, groups, field, length=length)
    if 0 < 10 * min(values) < max(values):
      axis.set_xscale("log")
    _ticks(axis, values)
    axis.set_xlabel(field)
    axis.set_title(f"test length: {length} {_unit(panel)}", fontsize=10)
  return _finish(figure, axes, title, path)


def _panels(count: int):
  size = (1.5 + 4.2 * count, 3.8)
  figure, axes = plt.subplots(1, count, figsize=size, squeeze=False)
  return figure, axes[0]


def _lines(axis, groups, x: str, **panel) -> list[dict]:
  """Draws each group's values against the field `x`.

  Args:
    axis: of one panel.
    groups: from `schema.groups`; each keeps its color in all panels.
    x: a field of rows.
    panel: values that rows of this panel have.

  Returns:
    The rows of this panel.
  """
  drawn = []
  for i, group in enumerate(groups):
    here = lambda row: all(row[f] == v for f, v in panel.items())
    mine = sorted(filter(here, group.rows), key=lambda row: row[x])
    drawn += mine
    at = {}
    for row in mine:
      at.setdefault(row[x], []).append(row)
    median = [100 * np.median([r["value"] for r in at[n]]) for n in at]
    low = [100 * min(_worst(r) for r in at[n]) for n in at]
    high = [100 * max(r["value"] for r in at[n]) for n in at]
    few = f" ({group.seeds} seeds)" if " of " in group.seeds else ""
    axis.plot(
      list(at),
      median,
      color=f"C{i % 10}",
      linestyle=STYLES[i // 10 % len(STYLES)],
      marker=MARKERS[i % len(MARKERS)],
      markersize=5,
      label=group.name + few,
      clip_on=False,
    )
    axis.fill_between(
      list(at), low, high, color=f"C{i % 10}", alpha=0.15, linewidth=0
    )
  return drawn


def _mark(axis, x, text: str) -> None:
  """A dotted vertical line that says what it is."""
  axis.axvline(x, color="0.6", linestyle=":", linewidth=1)
  axis.text(
    x,
    0.5,
    text,
    transform=axis.get_xaxis_transform(),
    color="0.4",
    fontsize=8,
    rotation=90,
    horizontalalignment="right",
    verticalalignment="center",
  )


def _unit(rows: list[dict]) -> str:
  """What the rows' lengths count."""
  return " or ".join(sorted({row["unit"] for row in rows}))


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
  return save(figure, path)


def of_run(rows: list[dict], folder, title: str) -> list[pathlib.Path]:
  """EM and edit distance, where measured, by length and by repetition."""
  repeats = [r for r in rows if r["test_set"].startswith("repeats_")]
  others = [r for r in rows if r not in repeats]
  made = []
  for metric, name in (("em", "accuracy"), ("edit", "edit_distance")):
    for mine, what, draw in (
      (others, "length", by_length),
      (repeats, "repetition", by_repetition),
    ):
      if schema.of_metric(mine, metric):
        path = pathlib.Path(folder) / f"{name}_by_{what}.png"
        made.append(draw(mine, path, title, metric))
  return made
