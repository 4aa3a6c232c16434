"""All figures of probes.

A figure is a function that yields its pages, and an entry of FIGURES.
"""

import dataclasses
import pathlib
import textwrap
from collections.abc import Callable, Iterator
from typing import NamedTuple

from lengthgen_jax.drawing import Canvas, plt, save
from lengthgen_jax.probes import input_figures, row_figures
from lengthgen_jax.probes.input_figures import FigureInput
from lengthgen_jax.probes.pages import Page, combined
from lengthgen_jax.probes.registry import ALL, LINES, SORTING, Requirement

COLUMNS = 100  # characters of the overview's text


@dataclasses.dataclass(frozen=True)
class FigureData:
  """Everything that figures are drawn from.

  Attributes:
    title: of the model.
    inputs: the single inputs that are drawn.
    rows: of all probes and seeds, of this stage.
    seed: whose inputs and heads are drawn.
    labels: of the rows that are patched and of the outputs, see
      row_figures.patched.
    summary: of all rows, a few lines.
    logs: by name of a training, rows of its metrics.jsonl and of the probes
      that ran meanwhile.
  """

  title: str
  inputs: list[FigureInput]
  rows: list[dict]
  seed: int
  labels: dict[str, list[str]]
  summary: list[str]
  logs: dict[str, tuple[list[dict], list[dict]]]


class Figure(NamedTuple):
  """A figure that the config can name.

  Attributes:
    pages: a function of FigureData that yields Pages.
    requires: which models it is for.
  """

  pages: Callable[[FigureData], Iterator[Page]]
  requires: Requirement


def _overview(data: FigureData) -> Iterator[Page]:
  """Yields one page of many: the first input, and what matters in the model."""
  first_input = dataclasses.replace(data, inputs=data.inputs[:1])
  names = ["by_length", "heads", "lines", "patches", "attention"]
  if SORTING.holds(data.inputs[0].observation.model):
    names.append("tokens")
  pages = [_summary(data)]
  for name in names:
    pages += FIGURES[name].pages(first_input)
  yield combined("overview", pages)


def _summary(data: FigureData) -> Page:
  """Returns a page of text, the summary of all probes."""
  lines = [data.title, ""]
  for line in data.summary:
    fits = len(line) <= COLUMNS
    lines += [line] if fits else textwrap.wrap(line, COLUMNS)
  width = max(map(len, lines)) * 0.065 + 0.4
  height = 0.3 + 0.155 * len(lines)

  def draw(canvas: Canvas) -> None:
    corner = 0.15 / width, 1 - 0.15 / height
    style = {"fontsize": 7.5, "family": "monospace", "va": "top"}
    canvas.text(*corner, "\n".join(lines), **style)

  return Page("summary", (width, height), draw)


# All figures, by name.
FIGURES = {
  "overview": Figure(_overview, ALL),
  "attention": Figure(lambda data: input_figures.attention(data.inputs), ALL),
  "projections": Figure(
    lambda data: input_figures.projections(data.inputs), ALL
  ),
  "tokens": Figure(lambda data: input_figures.tokens(data.inputs), SORTING),
  "bases": Figure(lambda data: input_figures.bases(data.inputs), ALL),
  "by_length": Figure(
    lambda data: row_figures.by_length(data.rows, data.seed), ALL
  ),
  "heads": Figure(
    lambda data: row_figures.without_head(data.rows, data.seed), ALL
  ),
  "lines": Figure(
    lambda data: row_figures.without_line(data.rows, data.seed), LINES
  ),
  "patches": Figure(
    lambda data: row_figures.patched(data.rows, data.seed, data.labels), ALL
  ),
  "training": Figure(lambda data: row_figures.by_step(data.logs), ALL),
}


def draw(
  figures: dict[str, Figure], data: FigureData, folder: pathlib.Path
) -> list[pathlib.Path]:
  """Draws the pages of figures as PNGs in a folder; returns their paths."""
  paths = []
  for figure in figures.values():
    for page in figure.pages(data):
      canvas = plt.figure(figsize=page.size)
      page.draw(canvas)
      paths.append(save(canvas, folder / f"{page.name}.png"))
  return paths
