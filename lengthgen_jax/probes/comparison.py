"""Probes of several models side by side: a table, and curves against length."""

import pathlib

import numpy as np

from lengthgen_jax.drawing import grid, plt, save, title
from lengthgen_jax.probes.ablation_charts import where
from lengthgen_jax.probes.registry import PROBES

COLUMNS = 4  # panels side by side
MARGINS, GAPS = (0.35, 0.1, 0.75, 0.55), (0.3, 0.6)  # inches


def panels(models: dict[str, list]) -> dict[tuple, str]:
  """What there is to compare: {(metric, place): words}, in PROBES' order."""
  there = dict.fromkeys(
    (row["metric"], where(row)) for rows in models.values() for row in rows
  )
  return {
    (metric, place): f"{probe.title}, {place}"
    for metric, probe in PROBES.items()
    for name, place in there
    if name == metric
  }


def table(models: dict[str, list]) -> list[list[str]]:
  """A head, and a line for each probe, place and model: median of seeds in %,
  the lowest seed in brackets where it differs.

  Args:
    models: rows of probes that are no head's, by what the model is called.
  """
  lengths = _lengths(models)
  made = [["probe", "model", *map(str, lengths)]]
  for at, words in panels(models).items():
    for model, rows in models.items():
      values = _values(rows, at)
      cells = [_cell(values.get(n, ())) for n in lengths]
      made += [[words, model, *cells]] if values else []
  return made


def figure(models: dict[str, list], path, words: str) -> pathlib.Path:
  """Draws the same: median of seeds against length, and their range.

  Args:
    models: as in `table`.
    path: of the PNG.
    words: the figure's title.

  Returns:
    The path.
  """
  found, lengths = panels(models), _lengths(models)
  down = -(-len(found) // COLUMNS)
  size = 0.4 + 2.6 * COLUMNS, 1.3 + 2.0 * down
  canvas = plt.figure(figsize=size)
  axes = grid(canvas, down, COLUMNS, size, MARGINS, GAPS).ravel()
  for axis, (at, name) in zip(axes, found.items(), strict=False):
    for number, rows in enumerate(models.values()):
      values = _values(rows, at)
      x, color = list(values), f"C{number % 10}"
      medians = [np.median(values[n]) for n in x]
      low, high = ([of(values[n]) for n in x] for of in (min, max))
      axis.plot(x, medians, color, marker="o", markersize=2.5, linewidth=1.2)
      axis.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    axis.set_xscale("log")
    axis.set_xticks(lengths, list(map(str, lengths)))
    axis.minorticks_off()
    axis.axvline(_trained(models), color="0.6", linestyle=":", linewidth=1)
    axis.set_ylim(-3, 103)
    axis.set_title(name.replace(", ", ",\n", 1), fontsize=7)
    axis.tick_params(labelsize=6)
  for axis in axes[len(found) :]:
    axis.set_axis_off()
  drawn = [
    plt.Line2D([], [], color=f"C{i % 10}", marker="o", markersize=3)
    for i in range(len(models))
  ]
  look = {"fontsize": 7, "frameon": False, "loc": "lower center"}
  canvas.legend(drawn, list(models), ncols=min(len(models), 4), **look)
  title(canvas, size, f"{words} (% against items; dotted: trained up to)")
  return save(canvas, path)


def _values(rows: list[dict], at: tuple) -> dict[int, list[float]]:
  """{length: values of seeds in %} of a panel."""
  found = {}
  for row in rows:
    if (row["metric"], where(row)) == at:
      found.setdefault(row["length"], []).append(100 * row["value"])
  return dict(sorted(found.items()))


def _cell(values) -> str:
  if not len(values):
    return ""
  text, low = f"{np.median(values):.1f}", f"{min(values):.1f}"
  return text if text == low else f"{text} ({low})"


def _lengths(models: dict) -> list[int]:
  return sorted({row["length"] for rows in models.values() for row in rows})


def _trained(models: dict) -> int:
  return next(r["train_length"] for rows in models.values() for r in rows)
