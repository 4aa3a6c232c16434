"""Pages, and many of them on one that a person reads at a glance."""

from collections.abc import Callable
from typing import NamedTuple

WIDE = 19.5  # inches, unless a page is wider


class Page(NamedTuple):
  """A figure, or a part of one.

  Attributes:
    name: of its file.
    size: (width, height) in inches.
    draw: a function of a canvas and its size.
  """

  name: str
  size: tuple
  draw: Callable


def together(name: str, pages: list[Page]) -> Page:
  """One page of many, each in its own size."""
  shelves = shelved(pages, max(WIDE, *(page.size[0] for page in pages)))
  width = max(sum(page.size[0] for page in own) for own in shelves)
  heights = [max(page.size[1] for page in own) for own in shelves]

  def draw(canvas, size):
    del size
    parts = _split(canvas, heights, across=False)
    for part, own, high in zip(parts, shelves, heights, strict=True):
      wide = [page.size[0] for page in own]
      cells = _split(part, [*wide, width - sum(wide)], across=True)
      for page, cell in zip(own, cells, strict=False):
        both = [page.size[1], high - page.size[1]]
        page.draw(_split(cell, both, across=False)[0], page.size)

  return Page(name, (width, sum(heights)), draw)


def shelved(pages: list[Page], width: float) -> list[list[Page]]:
  """Pages in rows no wider than `width`: the first one, then high ones first,
  each where there is room."""
  found = []
  for page in pages[:1] + sorted(pages[1:], key=lambda page: -page.size[1]):
    for own in found:
      if sum(other.size[0] for other in own) + page.size[0] <= width:
        own.append(page)
        break
    else:
      found.append([page])
  return found


def _split(canvas, sizes, across: bool) -> list:
  """Parts of a canvas of given sizes, side by side or below each other."""
  sizes = [max(size, 0.01) for size in sizes]
  if across:
    how = {"nrows": 1, "ncols": len(sizes), "width_ratios": sizes}
  else:
    how = {"nrows": len(sizes), "ncols": 1, "height_ratios": sizes}
  return list(canvas.subfigures(**how, wspace=0, hspace=0, squeeze=False).flat)
