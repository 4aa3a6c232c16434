"""An ablation of lines by training: a model is trained again without each line.

A trained model may fail when a line is taken from it, and yet have learned to
do without that line if it had been trained so. W/without has a training for
each line.
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterator

import jax
import numpy as np

from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import runs
from lengthgen_jax.pipelines.training_probes import passes
from lengthgen_jax.probes import interventions
from lengthgen_jax.probes.activations import Mean
from lengthgen_jax.training import loop


def retrained(
  run: loop.Run, folder: pathlib.Path, model: Model, pass_options: dict
) -> Iterator[Mean]:
  """Trains a model without a line in any head, and measures its exact match.

  Args:
    run: The training of `model`, which is done again for its seed.
    folder: The workdir.
    model: A trained model whose bias is lines.
    pass_options: Keyword arguments of `passes`.

  Yields:
    Means, of which `part` and `line` say what was left out.
  """
  cells_by_line = {
    key: cells
    for key, cells in interventions.lines(model).items()
    if key[1] is None and key[2] is None
  }
  for number, ((site, _, _, words), cells) in enumerate(
    cells_by_line.items(), 1
  ):
    runs.print_note(
      f"{number} of {len(cells_by_line)}: training without {site}, {words}"
    )
    name = re.sub(r"\W+", "_", f"{site}_{words}")
    ablated_run = _closed(
      run, model.seed, site, cells, folder / "without" / name
    )
    loop.train(ablated_run)
    (ablated_model,) = runs.load(ablated_run, "last")
    for seen in passes(ablated_model, **pass_options):
      (mean,) = interventions.intact(seen)
      yield mean._replace(part=site, line=words)


def _closed(
  run: loop.Run,
  seed: int,
  site: str,
  cells: list[tuple[int, int, int]],
  folder: pathlib.Path,
) -> loop.Run:
  """Returns the training of one seed without some lines of an attention site.

  Args:
    run: A training of several seeds.
    seed: One of its seeds.
    site: An attention site with lines.
    cells: The lines to leave out, (layer, head, number) each.
    folder: Where the checkpoints and logs go.
  """
  index = run.seeds.index(seed)
  of_seed = lambda x: (
    np.asarray(x)[index : index + 1] if len(x) > 1 else np.asarray(x)
  )
  scaffold = jax.tree.map(of_seed, run.scaffold)
  valid = scaffold[site].valid.copy()
  valid[0, *zip(*cells, strict=True)] = False
  scaffold = scaffold | {site: scaffold[site]._replace(valid=valid)}
  return dataclasses.replace(
    run,
    seeds=(seed,),
    scaffold=scaffold,
    folder=folder,
    keep=1,
    sparse_plan=run.experiment.sparse_training_plan(scaffold),
    watch=None,
    mesh=run.mesh.for_seeds(1, run.train.batch_size),
  )
