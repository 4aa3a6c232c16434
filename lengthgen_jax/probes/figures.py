"""Every figure there is: one function that yields pages, and one line below."""

import dataclasses
import textwrap
from collections.abc import Callable
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
  """What there is to draw.

  Attributes:
    title: of the model.
    inputs: list of pictures.Input.
    rows: of all seeds, of this stage.
    seed: whose inputs and heads are drawn.
    names: of the rows that are patched, see charts.patches.
    words: a few lines on what was found.
    logs: by name of a run, rows of its metrics.jsonl and what was watched.
  """

  title: str
  inputs: list
  rows: list
  seed: int
  names: dict
  words: list
  logs: dict

  def of(self, metric: str) -> list[dict]:
    """Rows of a metric of the seed that is drawn."""
    return ablation_charts.of_metric(self.rows, metric, seed=self.seed)

  def each(self):
    """(Input, prefix of its pages' names)."""
    for number, own in enumerate(self.inputs, start=1):
      yield own, f"input{number}_" if len(self.inputs) > 1 else ""


# One input.


def attention(shown: Shown):
  """Attention per layer and head, tokens on the axes; a page per site."""
  for own, prefix in shown.each():
    for site in own.sites:
      yield Page(
        f"{prefix}attention_{site}",
        attention_maps.attention_size(own, site),
        partial(attention_maps.attention, own=own, site=site),
      )


def residuals(shown: Shown):
  """Each position's residual in both bases, a dozen positions a page."""
  for own, prefix in shown.each():
    rows, most = own.rows, projections.ROWS
    for basis in projections.BASES:
      for start in range(0, len(rows), most):
        few = rows[start : start + most]
        number = f"_{start}" if len(rows) > most else ""
        yield Page(
          f"{prefix}projections_{basis}{number}",
          projections.positions_size(own, len(few)),
          partial(projections.positions, own=own, basis=basis, rows=few),
        )


def tokens(shown: Shown):
  """The task hinting paper's three: a token before and after `⊥`, and `⊥`."""
  for own, prefix in shown.each():
    length = own.seen.length
    items = own.seen.at.inputs[0, :length]
    rank = max((length - 1) // 2, 0)
    token = np.sort(items)[rank]
    for name, row, words in (
      ("before", int(np.argmax(items == token)), f"{token} before ⊥"),
      ("delimiter", length, "⊥"),
      ("after", length + 1 + rank, f"{token} after ⊥"),
    ):
      if row < own.seen.at.inputs.shape[1]:
        yield Page(
          f"{prefix}token_{name}",
          projections.position_size(own),
          partial(projections.position, own=own, row=row, words=words),
        )


def bases(shown: Shown):
  """Norms and angles of both bases."""
  draw = partial(projections.bases, own=shown.inputs[0])
  yield Page("bases", projections.BASES_SIZE, draw)


# Many inputs.


def curves(shown: Shown):
  """Probes against length."""
  there = {row["metric"] for row in shown.rows}
  titles = {
    name: probe.title
    for name, probe in PROBES.items()
    if probe.by_length and name in there
  }
  if titles:
    more = {"rows": shown.rows, "titles": titles, "seed": shown.seed}
    size = over.by_length_size(titles)
    yield Page("by_length", size, partial(over.by_length, **more))


def formation(shown: Shown):
  """What forms while a model trains; of runs that were watched."""
  titles = {name: probe.title for name, probe in PROBES.items()}
  for name, (metrics, rows) in shown.logs.items():
    more = {"metrics": metrics, "rows": rows, "titles": titles, "name": name}
    size = over.by_step_size(rows)
    yield Page(f"training_{name}", size, partial(over.by_step, **more))


def heads(shown: Shown):
  """What is lost without each head."""
  rows, intact = shown.of("without_head"), shown.of("intact")
  if rows and intact:
    draw = partial(ablation_charts.heads, rows=rows, intact=intact[0])
    yield Page("without_head", ablation_charts.heads_size(rows), draw)


def lines(shown: Shown):
  """What is lost without each line."""
  rows, intact = shown.of("without_line"), shown.of("intact")
  if rows and intact:
    more = {"enough": shown.of("enough_lines"), "intact": intact[0]}
    draw = partial(ablation_charts.lines, rows=rows, **more)
    yield Page("without_line", ablation_charts.lines_size(rows), draw)


def patches(shown: Shown):
  """What every output depends on."""
  rows, intact = shown.of("patched"), shown.of("intact")
  if rows and intact:
    more = {"names": shown.names, "intact": intact[0]}
    draw = partial(ablation_charts.patches, rows=rows, **more)
    yield Page("patched", ablation_charts.patches_size(rows, intact[0]), draw)


# At a glance.


def words(shown: Shown):
  """What was found, in a few lines."""
  lines = [shown.title, ""]
  for text in shown.words:
    whole = len(text) <= COLUMNS
    lines += [text] if whole else textwrap.wrap(text, COLUMNS)

  def draw(canvas, size):
    where = 0.15 / size[0], 1 - 0.15 / size[1]
    look = {"fontsize": 7.5, "family": "monospace", "va": "top"}
    canvas.text(*where, "\n".join(lines), **look)

  wide = max(map(len, lines)) * 0.065 + 0.4
  yield Page("words", (wide, 0.3 + 0.155 * len(lines)), draw)


def overview(shown: Shown):
  """What a person reads at a glance: the first input, and what matters."""
  first = dataclasses.replace(shown, inputs=shown.inputs[:1])
  makers = [words, curves, heads, lines, patches, attention]
  if SORTING.holds(shown.inputs[0].seen.model):
    makers.append(tokens)
  yield together("overview", [page for make in makers for page in make(first)])


class Figure(NamedTuple):
  """A figure.

  Attributes:
    pages: a function of what is Shown that yields Pages.
    need: which models it is for.
  """

  pages: Callable
  need: Need


# By name.
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


def draw(figures: dict, shown: Shown, folder) -> list:
  """Draws the pages of some figures as PNGs; returns their paths."""
  made = []
  for figure in figures.values():
    for page in figure.pages(shown):
      canvas = plt.figure(figsize=page.size)
      page.draw(canvas, page.size)
      made.append(save(canvas, folder / f"{page.name}.png"))
  return made
