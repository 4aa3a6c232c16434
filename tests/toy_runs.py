"""This module has runs of a toy on a mesh of devices."""

import toy

from lengthgen_jax import sections
from lengthgen_jax.training import loop, mesh

SEEDS = (3, 1, 4, 5)
FATES = (toy.CONVERGING, toy.BAD_LOSS, toy.CONVERGING, toy.HOPELESS)
ONE_HEAD = toy.Toy(output_heads=("main",), num_widths=1)
ENDLESS = 10**8  # steps of a run that only a signal ends


def toy_run(
  folder,
  shape=(1, 1),
  save_every=1,
  fates=FATES,
  seeds=SEEDS,
  experiment=ONE_HEAD,
  **fields,
):
  """Returns a loop.Run, by default of 60 steps and four seeds, of which one
  diverges.

  Args:
    folder: the run's folder.
    shape: (seeds, data) of the mesh of devices.
    save_every: after how many chunks a checkpoint is saved.
    fates: the fates of the seeds, as in toy.py.
    seeds: as many.
    experiment: a toy.Toy.
    fields: of `toy.train_config`, like steps and seed_axis.
  """
  return loop.Run(
    experiment=experiment,
    train=toy.train_config(**{"steps": 60, "target_exact_match": 2.0} | fields),
    seeds=seeds,
    scaffold=toy.scaffold(*fates),
    folder=folder,
    checkpoint=sections.Checkpoint(every=save_every, keep=9),
    mesh=mesh.make(shape, seeds, 16),
  )
