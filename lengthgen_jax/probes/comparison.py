"""Probes of several models side by side, as a table and as curves by length."""

import pathlib
from collections.abc import Sequence

import numpy as np

from lengthgen_jax.drawing import grid, plt, save, title
from lengthgen_jax.probes.ablation_charts import where
from lengthgen_jax.probes.registry import PROBES

COLUMNS = 4  # panels side by side
MARGINS, GAPS = (0.35, 0.1, 0.75, 0.55), (0.3, 0.6)  # inches


def panels(models: dict[str, list[dict]]) -> dict[tuple[str, str], str]:
  """Returns what there is to compare, in the order of PROBES.

  Args:
    models: rows of probes, by what the model is called.

  Returns:
    {(metric, place): words}.
  """
  pairs = dict.fromkeys(
    (row["metric"], where(row)) for rows in models.values() for row in rows
  )
  return {
    (metric, place): f"{probe.title}, {place}"
    for metric, probe in PROBES.items()
    for name, place in pairs
    if name == metric
  }


def table(models: dict[str, list[dict]]) -> list[list[str]]:
  """Returns a header row, and a row for each probe, place and model.

  A cell is the median of seeds in %, with the lowest seed in brackets where it
  differs.

  Args:
    models: rows of probes that are of no single head, by what the model is
      called.
  """
  lengths = _lengths(models)
  table_rows = [["probe", "model", *map(str, lengths)]]
  for panel, words in panels(models).items():
    for model, rows in models.items():
      values = _values(rows, panel)
      cells = [_cell(values.get(length, ())) for length in lengths]
      table_rows += [[words, model, *cells]] if values else []
  return table_rows


def figure(
  models: dict[str, list[dict]], path: pathlib.Path | str, words: str
) -> pathlib.Path:
  """Draws the values of `table` against length, a panel per probe and place.

  A curve is the median of seeds, and the area around it is their range.

  Args:
    models: as in `table`.
    path: where the PNG goes.
    words: the figure's title.

  Returns:
    The path of the PNG.
  """
  panel_titles, lengths = panels(models), _lengths(models)
  panel_rows = -(-len(panel_titles) // COLUMNS)
  size = 0.4 + 2.6 * COLUMNS, 1.3 + 2.0 * panel_rows
  canvas = plt.figure(figsize=size)
  axes = grid(canvas, panel_rows, COLUMNS, size, MARGINS, GAPS).ravel()
  for axis, (panel, name) in zip(axes, panel_titles.items(), strict=False):
    for index, rows in enumerate(models.values()):
      values = _values(rows, panel)
      measured, color = list(values), f"C{index % 10}"
      medians = [np.median(values[length]) for length in measured]
      lows, highs = (
        [reduce(values[length]) for length in measured] for reduce in (min, max)
      )
      axis.plot(
        measured, medians, color, marker="o", markersize=2.5, linewidth=1.2
      )
      axis.fill_between(
        measured, lows, highs, color=color, alpha=0.15, linewidth=0
      )
    axis.set_xscale("log")
    axis.set_xticks(lengths, list(map(str, lengths)))
    axis.minorticks_off()
    axis.axvline(_trained(models), color="0.6", linestyle=":", linewidth=1)
    axis.set_ylim(-3, 103)
    axis.set_title(name.replace(", ", ",\n", 1), fontsize=7)
    axis.tick_params(labelsize=6)
  for axis in axes[len(panel_titles) :]:
    axis.set_axis_off()
  handles = [
    plt.Line2D([], [], color=f"C{number % 10}", marker="o", markersize=3)
    for number in range(len(models))
  ]
  style = {"fontsize": 7, "frameon": False, "loc": "lower center"}
  canvas.legend(handles, list(models), ncols=min(len(models), 4), **style)
  title(canvas, size, f"{words} (% against items; dotted: trained up to)")
  return save(canvas, path)


def _values(rows: list[dict], panel: tuple[str, str]) -> dict[int, list[float]]:
  """Returns the values in % of all seeds in one panel, by length."""
  by_length = {}
  for row in rows:
    if (row["metric"], where(row)) == panel:
      by_length.setdefault(row["length"], []).append(100 * row["value"])
  return dict(sorted(by_length.items()))


def _cell(values: Sequence[float]) -> str:
  """Returns the text of a cell; "" where there is no value."""
  if not len(values):
    return ""
  text, lowest = f"{np.median(values):.1f}", f"{min(values):.1f}"
  return text if text == lowest else f"{text} ({lowest})"


def _lengths(models: dict[str, list[dict]]) -> list[int]:
  """Returns all lengths that were measured, in order."""
  return sorted({row["length"] for rows in models.values() for row in rows})


def _trained(models: dict[str, list[dict]]) -> int:
  """Returns the longest training length, as the first row has it."""
  return next(row["train_length"] for rows in models.values() for row in rows)
