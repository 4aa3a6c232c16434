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


def retrained(run: loop.Run, folder, model, see):
  """Exact match of models that were trained without a line in any head; yields
  Means, of which `part` and `line` say what was left out.

  Args:
    run: the training of `model`, which is done again for its seed.
    folder: of the workdir.
    model: a trained.Model whose bias is lines.
    see: keyword arguments of `passes`.
  """
  found = {
    at: cells
    for at, cells in interventions.lines(model).items()
    if at[1] is None and at[2] is None
  }
  for number, ((site, _, _, words), cells) in enumerate(found.items(), 1):
    workdir.report(
      f"{number} of {len(found)}: training without {site}, {words}"
    )
    name = re.sub(r"\W+", "_", f"{site}_{words}")
    own = _closed(run, model.seed, site, cells, folder / "without" / name)
    loop.train(own)
    (again,) = workdir.load(own, "last")
    for seen in passes(again, **see):
      (mean,) = interventions.intact(seen)
      yield mean._replace(part=site, line=words)


def _closed(run: loop.Run, seed: int, site: str, cells, folder) -> loop.Run:
  """The training of one seed without some lines (layer, head, number)."""
  at = run.seeds.index(seed)
  one = lambda x: np.asarray(x)[at : at + 1] if len(x) > 1 else np.asarray(x)
  scaffold = jax.tree.map(one, run.scaffold)
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
