"""Draws the grid that a model of a local rule writes: row below row, a pixel
for each cell.

  python launch/space_time.py --model=automaton --out=grid.png 0001000*60 [...]

The model is a workdir, or one that comes with the package. For each input it
says how many cells are wrong.
"""

import pathlib
import sys

import numpy as np

import lengthgen_jax
from lengthgen_jax.drawing import panels, save
from lengthgen_jax.errors import Parser, check
from lengthgen_jax.evaluation.trained import scored
from lengthgen_jax.tasks.grid import GridTask


def grid(model, text: str) -> tuple[np.ndarray, int]:
  """Returns the cells [rows, cells] that a model writes, and how many of them
  are wrong."""
  task, batch = model.experiment.task, model.text_batch(text)
  width = task.padded_width(task.parse(text)[1])
  (right,) = scored(batch, batch.target)
  cells = model.greedy(batch, stop=task.end)[0, : len(right)]
  return cells.reshape(width[::-1]), int((cells != right).sum())


def main() -> None:
  parser = Parser(__doc__)
  parser.add_argument("--model", required=True)
  parser.add_argument("--out", type=pathlib.Path, required=True)
  parser.add_argument("inputs", nargs="+")
  try:
    arguments = parser.parse_args()
    model = lengthgen_jax.load(arguments.model).model
    task = model.experiment.task
    is_grid = isinstance(task, GridTask) and task.end is None
    check(is_grid, f"--model: {task.name} writes no grid of cells alone")
    draw(model, arguments.inputs, arguments.out)
  except ValueError as error:
    sys.exit(f"space_time: {error}")


def draw(model, inputs: list[str], path: pathlib.Path) -> None:
  figure, axes = panels(len(inputs), 9 / len(inputs), 5)
  names = model.experiment.task.cells
  style = {"cmap": "cividis_r", "interpolation": "nearest"}
  for axis, text in zip(axes, inputs, strict=True):
    cells, wrong = grid(model, text)
    rows, columns = cells.shape
    print(f"{rows} rows of {columns} cells: {wrong} wrong", flush=True)
    axis.imshow(cells, vmin=0, vmax=len(names) - 1, **style)
    axis.set(xlabel="cell", ylabel="row")
    axis.locator_params(axis="x", integer=True)
  if len(names) <= 20:
    ticks = range(len(names))
    bar = figure.colorbar(axes[0].images[0], ax=axes, ticks=ticks)
    bar.ax.set_yticklabels(names)
  print(f"figure: {save(figure, path)}")


if __name__ == "__main__":
  main()
