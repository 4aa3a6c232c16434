"""Pages of figures, and the layout of many pages on a single one."""

from collections.abc import Callable
from typing import NamedTuple

from lengthgen_jax.drawing import plt

WIDE = 19.5  # inches, unless a page is wider


class Page(NamedTuple):
  """A figure, or a part of one, that is not drawn yet.

  Attributes:
    name: of the file that it is written to, without a suffix.
    size: (width, height) in inches.
    draw: a function of a canvas and its size that draws the page.
  """

  name: str
  size: tuple[float, float]
  draw: Callable[[plt.FigureBase, tuple[float, float]], None]


def together(name: str, pages: list[Page]) -> Page:
  """Returns one page that holds many, each in its own size.

  Args:
    name: of the whole page.
    pages: they are laid out in rows, see `shelved`.
  """
  shelves = shelved(pages, max(WIDE, *(page.size[0] for page in pages)))
  width = max(sum(page.size[0] for page in shelf) for shelf in shelves)
  heights = [max(page.size[1] for page in shelf) for shelf in shelves]

  def draw(canvas: plt.FigureBase, size: tuple[float, float]) -> None:
    del size
    parts = _split(canvas, heights, across=False)
    for part, shelf, height in zip(parts, shelves, heights, strict=True):
      widths = [page.size[0] for page in shelf]
      cells = _split(part, [*widths, width - sum(widths)], across=True)
      for page, cell in zip(shelf, cells, strict=False):
        cell_heights = [page.size[1], height - page.size[1]]
        page.draw(_split(cell, cell_heights, across=False)[0], page.size)

  return Page(name, (width, sum(heights)), draw)


def shelved(pages: list[Page], width: float) -> list[list[Page]]:
  """Returns pages in rows that are no wider than `width` inches.

  The first page comes first, then the others from the highest on, each in the
  first row that has room.
  """
  shelves = []
  for page in pages[:1] + sorted(pages[1:], key=lambda page: -page.size[1]):
    for shelf in shelves:
      if sum(other.size[0] for other in shelf) + page.size[0] <= width:
        shelf.append(page)
        break
    else:
      shelves.append([page])
  return shelves


def _split(canvas: plt.FigureBase, sizes: list[float], across: bool) -> list:
  """Returns parts of a canvas, of given sizes in inches.

  Args:
    canvas: what is split.
    sizes: widths or heights of the parts.
    across: whether the parts are side by side, or one below the other.
  """
  sizes = [max(size, 0.01) for size in sizes]
  if across:
    layout = {"nrows": 1, "ncols": len(sizes), "width_ratios": sizes}
  else:
    layout = {"nrows": len(sizes), "ncols": 1, "height_ratios": sizes}
  return list(
    canvas.subfigures(**layout, wspace=0, hspace=0, squeeze=False).flat
  )
