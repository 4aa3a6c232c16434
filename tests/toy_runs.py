"""This module has runs of a toy on a mesh of devices."""

import toy

from lengthgen_jax import sections
from lengthgen_jax.training import loop, mesh

SEEDS = (3, 1, 4, 5)
FATES = (toy.CONVERGING, toy.BAD_LOSS, toy.CONVERGING, toy.HOPELESS)
ENDLESS = 10**8  # steps of a run that only a signal ends


def toy_run(
  folder, shape=(1, 1), steps=60, save_every=1, fates=FATES, seed_axis="loop"
):
  """Returns a loop.Run of four seeds, of which one diverges by default.

  Args:
    folder: the run's folder.
    shape: (seeds, data) of the mesh of devices.
    steps: the gradient steps.
    save_every: after how many chunks a checkpoint is saved.
    fates: the fates of the seeds, as in toy.py.
    seed_axis: "loop" for seeds in turn, "vmap" for seeds side by side.
  """
  return loop.Run(
    experiment=toy.Toy(output_heads=("main",), num_widths=1),
    train=toy.train_config(
      steps=steps, target_exact_match=2.0, seed_axis=seed_axis
    ),
    seeds=SEEDS,
    scaffold=toy.scaffold(*fates),
    folder=folder,
    checkpoint=sections.Checkpoint(every=save_every, keep=9),
    mesh=mesh.make(shape, SEEDS, 16),
  )
