"""Draws the grid that a model of a local rule writes: row below row, a pixel
for each cell.

  python launch/space_time.py --model=automaton --out=grid.png 0001000*60 [...]

The model is a workdir, or one that comes with the package. For each input it
says how many cells are wrong.
"""

import argparse
import pathlib
import time

import numpy as np

import lengthgen_jax
from lengthgen_jax.drawing import plt
from lengthgen_jax.tasks import dataset
from lengthgen_jax.tasks.grid import GridTask


def grid(model, text: str) -> tuple[np.ndarray, int]:
  """Returns the cells [rows, cells] that a model writes, and how many of them
  are wrong."""
  task, kind = model.experiment.task, model.experiment.kind
  parsed = task.parse(text)
  width = task.padded_width(parsed[1])
  batch = dataset.parsed_batch(task, kind, [parsed], width, width)
  cells = model.greedy(batch, stop=task.end)[0, : width[0] * width[1]]
  right = np.asarray(batch.target)[0][np.asarray(batch.weight)[0] > 0]
  return cells.reshape(width[::-1]), int((cells != right).sum())


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--model", required=True)
  parser.add_argument("--out", type=pathlib.Path, required=True)
  parser.add_argument("inputs", nargs="+")
  arguments = parser.parse_args()
  model = lengthgen_jax.load(arguments.model).model
  grids = []
  for text in arguments.inputs:
    start = time.perf_counter()
    cells, wrong = grid(model, text)
    seconds = time.perf_counter() - start
    rows, columns = cells.shape
    print(f"{rows} rows of {columns} cells: {wrong} wrong, {seconds:.0f} s")
    grids.append(cells)
  figure, axes = plt.subplots(
    1, len(grids), squeeze=False, layout="constrained", figsize=(10, 6)
  )
  task = model.experiment.task
  assert isinstance(task, GridTask)
  names, image = task.cells, None
  for axis, cells in zip(axes[0], grids, strict=True):
    image = axis.imshow(cells, cmap="cividis_r", interpolation="nearest",
                        vmin=0, vmax=len(names) - 1)  # fmt: skip
    axis.set(xlabel="cell", ylabel="row")
    axis.xaxis.get_major_locator().set_params(integer=True)
  if image and len(names) <= 20:
    bar = figure.colorbar(image, ax=axes, ticks=range(len(names)))
    bar.ax.set_yticklabels(names)
  figure.savefig(arguments.out)
  print(f"figure: {arguments.out}")


if __name__ == "__main__":
  main()
