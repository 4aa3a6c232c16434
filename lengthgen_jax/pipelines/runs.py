"""The run that a config describes, and the models that it trained."""

import dataclasses
import itertools
import pathlib
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict
from tqdm import tqdm

from lengthgen_jax import hosts
from lengthgen_jax.attention import kernel, lines
from lengthgen_jax.config import build
from lengthgen_jax.errors import UsageError
from lengthgen_jax.evaluation import trained
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines.training_probes import make_watcher
from lengthgen_jax.tasks import dataset
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.training import loop, mesh, optimizer


def print_note(line: str) -> None:
  """Prints a line on the first host's standard error, above a progress bar."""
  if hosts.is_primary():
    tqdm.write(line, file=sys.stderr)


def make_run(
  config: ConfigDict, folder: pathlib.Path, scaffold: dict | None = None
) -> loop.Run:
  """Returns the run that a config describes; it neither reads nor writes its
  folder.

  With model.dtype=float64 in any stage, JAX's 64-bit types are enabled for the
  whole process; other stages keep their own dtype.

  Args:
    config: a whole config.
    folder: where the checkpoints and logs of the run are or will be.
    scaffold: the bias by attention site, [seeds or 1, ...]; None for the one
      that the config describes.

  Raises:
    UsageError: a field is not valid, or the bias does not fit the model.
  """
  if "float64" in (config.model.dtype, config.retrain.model.get("dtype")):
    jax.config.update("jax_enable_x64", True)  # for all stages of the process
  experiment = build.build(config)
  if scaffold is None:
    scaffold = build.make_scaffold(config, experiment)
  _check_scaffold(experiment, scaffold, config.eval)
  return loop.Run(
    experiment=experiment,
    train=optimizer.TrainConfig(**config.train),
    seeds=tuple(config.seeds),
    scaffold=scaffold,
    folder=folder,
    save_every=config.checkpoint.every,
    keep=config.checkpoint.keep,
    report=print_note,
    sparse_plan=experiment.sparse_training_plan(scaffold),
    watch=make_watcher(config.probe, config.calibration, experiment, scaffold),
    watch_every=config.probe.every,
    mesh=mesh.make(config.mesh, config.seeds, config.train.batch_size),
  )


def _check_scaffold(
  experiment: Experiment, scaffold: dict, section: ConfigDict
) -> None:
  """Raises UsageError if a scaffold lets rows attend to later outputs (and
  bias.allow_leak is not set), or if it is too small for training or for a test
  that config.eval, `section`, asks for."""
  if "self" in scaffold and not experiment.bias.allow_leak:
    leak = scaffold["self"].first_leak()
    if leak is not None:
      seed, layer, head, row, column = leak
      raise UsageError(
        f"bias leaks the future: site self, index of the seed {seed}, layer"
        f" {layer}, head {head}, row {row} sees column {column}; repair it, or"
        " ask for it by --config.bias.allow_leak=true"
      )
  for data_set in experiment.data:  # the inputs of a hint may be longer
    alone = dataclasses.replace(experiment, data=(data_set,))
    longest = data_set.bound(len(data_set.lengths.buckets) - 1)
    alone.check_scaffold(longest, scaffold)
  task = experiment.task
  frontier = [section.frontier] if section.frontier else []
  for test_set, length in itertools.product(
    task.tested_sets(section), [*section.lengths, *frontier]
  ):
    for _, arguments in task.variants(test_set, section, length):
      width = experiment.test_width(length, arguments)
      experiment.check_scaffold(width, scaffold)


def print_closed_rows(run: loop.Run) -> None:
  """Prints a note for each decoder site at which some scored rows of the run's
  scaffold have all keys closed at the last width of training; all seeds, layers
  and heads count."""
  experiment, scaffold = run.experiment, run.scaffold
  if not scaffold:
    return
  num_seeds = max(len(jax.tree.leaves(tree)[0]) for tree in scaffold.values())
  longest = dataset.Part(len(experiment.data[0].lengths.buckets) - 1, 1)
  batch = experiment.sample(
    jax.random.key(0), experiment.task.name, longest, experiment.num_widths - 1
  )
  scored_T = np.asarray(batch.weight[0]) > 0
  closed_masks = [
    _closed_rows(experiment, lines.of_seed(scaffold, index), batch)
    for index in range(num_seeds)
  ]
  for site in sorted(closed_masks[0]):
    closed_count = sum(
      int(mask[site][..., scored_T].sum()) for mask in closed_masks
    )
    if closed_count:
      print_note(
        f"bias: {closed_count} rows of {site}-attention have nothing open, of"
        f" {int(scored_T.sum())} in each head; their context vector is zero"
      )


@partial(jax.jit, static_argnums=0)
def _closed_rows(
  experiment: Experiment, scaffold: dict, batch: Batch
) -> dict[str, jax.Array]:
  """Returns by decoder site which rows have no open key with a seed's
  scaffold, [N or 1, 1, H, T] bool."""
  biases = experiment.site_inputs(scaffold, batch).biases
  return {
    site: jnp.all(biases[site].values == kernel.CLOSED, axis=-1)
    for site in set(scaffold) - {"encoder"}
  }


def load(run: loop.Run, checkpoint: str) -> list[trained.Model]:
  """Loads the models of a trained run, one of each seed.

  Args:
    run: the run.
    checkpoint: "last", "best" or the number of a step.

  Raises:
    UsageError: there is no such checkpoint.
  """
  return trained.models(run, loop.load(run, checkpoint), checkpoint)
