"""All figures of probes.

A figure is a function that yields its pages, and an entry of FIGURES.
"""

import dataclasses
import pathlib
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.probes import ablation_charts, attention_maps, projections
from lengthgen_jax.probes import curves as over
from lengthgen_jax.probes.registry import ALL, LINES, PROBES, SORTING, Need
from lengthgen_jax.probes.sheets import Page, together

COLUMNS = 100  # characters of the overview's text


@dataclasses.dataclass(frozen=True)
class Shown:
  """Everything that figures are drawn from.

  Attributes:
    title: of the model.
    inputs: the single inputs that are drawn.
    rows: of all probes and seeds, of this stage.
    seed: whose inputs and heads are drawn.
    names: of the rows that are patched, see ablation_charts.patches.
    words: the summary of all rows, a few lines.
    logs: by name of a run, rows of its metrics.jsonl and of the probes that
      ran while it trained.
  """

  title: str
  inputs: list[attention_maps.Input]
  rows: list[dict]
  seed: int
  names: dict[str | None, list[str]]
  words: list[str]
  logs: dict[str, tuple[list[dict], list[dict]]]

  def of(self, metric: str) -> list[dict]:
    """Returns the rows of a metric of the seed that is drawn."""
    return ablation_charts.of_metric(self.rows, metric, seed=self.seed)

  def each(self) -> Iterator[tuple[attention_maps.Input, str]]:
    """Yields each input, with the prefix of its pages' names."""
    for number, example in enumerate(self.inputs, start=1):
      yield example, f"input{number}_" if len(self.inputs) > 1 else ""


# Pages of one input.


def attention(shown: Shown) -> Iterator[Page]:
  """Yields a page per site: attention by layer and head, tokens on the axes."""
  for example, prefix in shown.each():
    for site in example.sites:
      yield Page(
        f"{prefix}attention_{site}",
        attention_maps.attention_size(example, site),
        partial(attention_maps.attention, example=example, site=site),
      )


def residuals(shown: Shown) -> Iterator[Page]:
  """Yields each position's residual in both bases, a dozen positions a page."""
  for example, prefix in shown.each():
    rows, page_size = example.rows, projections.ROWS
    for basis in projections.BASES:
      for start in range(0, len(rows), page_size):
        page_rows = rows[start : start + page_size]
        number = f"_{start}" if len(rows) > page_size else ""
        yield Page(
          f"{prefix}projections_{basis}{number}",
          projections.positions_size(example, len(page_rows)),
          partial(
            projections.positions, example=example, basis=basis, rows=page_rows
          ),
        )


def tokens(shown: Shown) -> Iterator[Page]:
  """Yields pages of a token before `⊥`, of `⊥`, and of the same after it.

  They are the three positions that the task hinting paper draws (figure 4.14).
  """
  for example, prefix in shown.each():
    length = example.seen.length
    items = example.seen.at.inputs[0, :length]
    rank = max((length - 1) // 2, 0)
    token = np.sort(items)[rank]
    for name, row, description in (
      ("before", int(np.argmax(items == token)), f"{token} before ⊥"),
      ("delimiter", length, "⊥"),
      ("after", length + 1 + rank, f"{token} after ⊥"),
    ):
      if row < example.seen.at.inputs.shape[1]:
        yield Page(
          f"{prefix}token_{name}",
          projections.position_size(example),
          partial(
            projections.position, example=example, row=row, words=description
          ),
        )


def bases(shown: Shown) -> Iterator[Page]:
  """Yields a page of the norms of both bases and the angles between them."""
  draw_chart = partial(projections.bases, example=shown.inputs[0])
  yield Page("bases", projections.BASES_SIZE, draw_chart)


# Pages of many inputs.


def curves(shown: Shown) -> Iterator[Page]:
  """Yields a page of probes against length, if there are any."""
  metrics = {row["metric"] for row in shown.rows}
  titles = {
    name: probe.title
    for name, probe in PROBES.items()
    if probe.by_length and name in metrics
  }
  if titles:
    options = {"rows": shown.rows, "titles": titles, "seed": shown.seed}
    size = over.by_length_size(titles)
    yield Page("by_length", size, partial(over.by_length, **options))


def formation(shown: Shown) -> Iterator[Page]:
  """Yields a page for each run that was probed while it trained.

  It shows what forms in the model as it learns.
  """
  titles = {name: probe.title for name, probe in PROBES.items()}
  for name, (metrics, rows) in shown.logs.items():
    options = {"metrics": metrics, "rows": rows, "titles": titles, "name": name}
    size = over.by_step_size(rows)
    yield Page(f"training_{name}", size, partial(over.by_step, **options))


def heads(shown: Shown) -> Iterator[Page]:
  """Yields a page of what the model loses without each head."""
  rows, intact = shown.of("without_head"), shown.of("intact")
  if rows and intact:
    draw_chart = partial(ablation_charts.heads, rows=rows, intact=intact[0])
    yield Page("without_head", ablation_charts.heads_size(rows), draw_chart)


def lines(shown: Shown) -> Iterator[Page]:
  """Yields a page of what the model loses without each line of its bias."""
  rows, intact = shown.of("without_line"), shown.of("intact")
  if rows and intact:
    options = {"enough": shown.of("enough_lines"), "intact": intact[0]}
    draw_chart = partial(ablation_charts.lines, rows=rows, **options)
    yield Page("without_line", ablation_charts.lines_size(rows), draw_chart)


def patches(shown: Shown) -> Iterator[Page]:
  """Yields a page of the residuals that every output depends on."""
  rows, intact = shown.of("patched"), shown.of("intact")
  if rows and intact:
    options = {"names": shown.names, "intact": intact[0]}
    draw_chart = partial(ablation_charts.patches, rows=rows, **options)
    yield Page(
      "patched", ablation_charts.patches_size(rows, intact[0]), draw_chart
    )


# Overview.


def words(shown: Shown) -> Iterator[Page]:
  """Yields a page of text, the summary of all probes."""
  lines = [shown.title, ""]
  for text in shown.words:
    fits = len(text) <= COLUMNS
    lines += [text] if fits else textwrap.wrap(text, COLUMNS)

  def draw_text(canvas: plt.FigureBase, size: tuple[float, float]) -> None:
    corner = 0.15 / size[0], 1 - 0.15 / size[1]
    style = {"fontsize": 7.5, "family": "monospace", "va": "top"}
    canvas.text(*corner, "\n".join(lines), **style)

  width = max(map(len, lines)) * 0.065 + 0.4
  yield Page("words", (width, 0.3 + 0.155 * len(lines)), draw_text)


def overview(shown: Shown) -> Iterator[Page]:
  """Yields one page of many: the first input, and what matters in the model."""
  first = dataclasses.replace(shown, inputs=shown.inputs[:1])
  page_makers = [words, curves, heads, lines, patches, attention]
  if SORTING.holds(shown.inputs[0].seen.model):
    page_makers.append(tokens)
  yield together(
    "overview",
    [page for make_pages in page_makers for page in make_pages(first)],
  )


class Figure(NamedTuple):
  """A figure that the config can name.

  Attributes:
    pages: a function of what is Shown that yields Pages.
    need: which models it is for.
  """

  pages: Callable[[Shown], Iterator[Page]]
  need: Need


# All figures, by name.
FIGURES = {
  "overview": Figure(overview, ALL),
  "attention": Figure(attention, ALL),
  "projections": Figure(residuals, ALL),
  "tokens": Figure(tokens, SORTING),
  "bases": Figure(bases, ALL),
  "by_length": Figure(curves, ALL),
  "heads": Figure(heads, ALL),
  "lines": Figure(lines, LINES),
  "patches": Figure(patches, ALL),
  "training": Figure(formation, ALL),
}


def draw(
  figures: dict[str, Figure], shown: Shown, folder: pathlib.Path
) -> list[pathlib.Path]:
  """Draws the pages of some figures as PNGs, and returns their paths.

  Args:
    figures: by name, like FIGURES.
    shown: what they are drawn from.
    folder: where the PNGs go.
  """
  paths = []
  for figure in figures.values():
    for page in figure.pages(shown):
      canvas = plt.figure(figsize=page.size)
      page.draw(canvas, page.size)
      paths.append(save(canvas, folder / f"{page.name}.png"))
  return paths
