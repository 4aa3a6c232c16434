"""A model trained again without a line of its bias, each in turn.

What a trained model loses without a line it may have learned to do without, had
it never been there. W/without has a run for each line.
"""

import dataclasses
import re

import jax
import numpy as np

from lengthgen_jax.pipelines import workdir
from lengthgen_jax.pipelines.training_probes import passes
from lengthgen_jax.probes import interventions
from lengthgen_jax.training import loop


def retrained(run: loop.Run, folder, model, pass_options):
  """Exact match of models that were trained without a line in any head; yields
  Means, of which `part` and `line` say what was left out.

  Args:
    run: the training of `model`, which is done again for its seed.
    folder: of the workdir.
    model: a trained.Model whose bias is lines.
    see: keyword arguments of `passes`.
  """
  cells_by_line = {
    key: cells
    for key, cells in interventions.lines(model).items()
    if key[1] is None and key[2] is None
  }
  for number, ((site, _, _, words), cells) in enumerate(
    cells_by_line.items(), 1
  ):
    workdir.report(
      f"{number} of {len(cells_by_line)}: training without {site}, {words}"
    )
    name = re.sub(r"\W+", "_", f"{site}_{words}")
    ablated_run = _closed(
      run, model.seed, site, cells, folder / "without" / name
    )
    loop.train(ablated_run)
    (ablated_model,) = workdir.load(ablated_run, "last")
    for seen in passes(ablated_model, **pass_options):
      (mean,) = interventions.intact(seen)
      yield mean._replace(part=site, line=words)


def _closed(run: loop.Run, seed: int, site: str, cells, folder) -> loop.Run:
  """The training of one seed without some lines (layer, head, number)."""
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
    open_heads=run.experiment.followed(scaffold),
    watch=None,
    mesh=run.mesh.fit(1, run.train.batch_size),
  )
