"""This module has the figures of probes that a config can name, and draws
them."""

import dataclasses
import pathlib
import textwrap
from collections.abc import Callable, Iterator
from typing import NamedTuple

from lengthgen_jax.drawing import Canvas, plt, save
from lengthgen_jax.probes import input_figures, row_figures
from lengthgen_jax.probes.pages import FigureData, Page, combined
from lengthgen_jax.probes.registry import ALL, LINES, SORTING, Requirement

COLUMNS = 100  # characters of a line of the summary that is not of a table


class Figure(NamedTuple):
  """A Figure is an entry of FIGURES, which probe.figures can name.

  Attributes:
    pages: a function of FigureData that yields Pages.
    requires: the models that it is for.
  """

  pages: Callable[[FigureData], Iterator[Page]]
  requires: Requirement


def _overview(data: FigureData) -> Iterator[Page]:
  """Yields one page with the summary and the main figures; of the inputs, the
  first one alone is drawn."""
  first_input = dataclasses.replace(data, inputs=data.inputs[:1])
  names = ["by_length", "heads", "lines", "patches", "attention"]
  if SORTING.holds(data.inputs[0].observation.model):
    names.append("tokens")
  pages = [_summary(data)]
  for name in names:
    pages += FIGURES[name].pages(first_input)
  yield combined("overview", pages)


def _summary(data: FigureData) -> Page:
  """Returns a page with the lines of `data.summary` as text."""
  lines = [data.title, ""]
  for line in data.summary:
    # Rows of a table have runs of spaces inside; they are not broken.
    is_whole = len(line) <= COLUMNS or "   " in line.strip()
    lines += [line] if is_whole else textwrap.wrap(line, COLUMNS)
  width = max(map(len, lines)) * 0.065 + 0.4
  height = 0.3 + 0.155 * len(lines)

  def draw(canvas: Canvas) -> None:
    corner = 0.15 / width, 1 - 0.15 / height
    style = {"fontsize": 7.5, "family": "monospace", "va": "top"}
    canvas.text(*corner, "\n".join(lines), **style)

  return Page("summary", (width, height), draw)


# All figures, by their names in probe.figures.
FIGURES = {
  "overview": Figure(_overview, ALL),
  "attention": Figure(input_figures.attention, ALL),
  "projections": Figure(input_figures.projections, ALL),
  "tokens": Figure(input_figures.tokens, SORTING),
  "bases": Figure(input_figures.bases, ALL),
  "by_length": Figure(row_figures.by_length, ALL),
  "heads": Figure(row_figures.without_head, ALL),
  "lines": Figure(row_figures.without_line, LINES),
  "patches": Figure(row_figures.patched, ALL),
  "training": Figure(row_figures.by_step, ALL),
}


def draw(
  figures: dict[str, Figure], data: FigureData, folder: pathlib.Path
) -> list[pathlib.Path]:
  """Draws every page of some figures as a PNG in a folder; returns the paths.

  Args:
    figures: some of FIGURES, as `registry.select` returns them.
    data: what they are drawn from.
    folder: where the files are written.
  """
  paths = []
  for figure in figures.values():
    for page in figure.pages(data):
      canvas = plt.figure(figsize=page.size)
      page.draw(canvas)
      paths.append(save(canvas, folder / f"{page.name}.png"))
  return paths
