"""The run that a config describes, and the models that it trained."""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from ml_collections import ConfigDict
from tqdm import tqdm

from lengthgen_jax import hosts, rng
from lengthgen_jax.attention import kernel, lines
from lengthgen_jax.config import build
from lengthgen_jax.construction import weights
from lengthgen_jax.errors import UsageError
from lengthgen_jax.evaluation import trained
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines.training_probes import make_watcher
from lengthgen_jax.tasks import dataset
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.training import loop, mesh, optimizer

PRACTICE_INPUTS = "practice.json"  # the inputs of a round of practice, by seed
UNMENDED = "unmended.json"  # the seeds that are wrong after all rounds


def print_note(line: str) -> None:
  """Prints a line on the first host's standard error, above a progress bar."""
  if hosts.is_primary():
    tqdm.write(line, file=sys.stderr)


def make_run(
  config: ConfigDict,
  folder: pathlib.Path,
  on_note: Callable[[str], None] = lambda note: None,
) -> loop.Run:
  """Returns the run that a config describes, of which nothing is done yet.

  Args:
    config: A whole config.
    folder: Where the checkpoints and logs go.
    on_note: Called with a line for everything that is odd about the scaffold.
  """
  if "float64" in (config.model.dtype, config.retrain.model.dtype):
    jax.config.update("jax_enable_x64", True)  # for all stages of the process
  experiment = build.build(config)
  scaffold = build.make_scaffold(config, experiment)
  for note in inspect_scaffold(experiment, scaffold, config.eval.lengths):
    on_note(note)
  return loop.Run(
    experiment=experiment,
    train=optimizer.TrainConfig(**config.train),
    seeds=tuple(config.seeds),
    scaffold=scaffold,
    folder=folder,
    save_every=config.checkpoint.every,
    keep=config.checkpoint.keep,
    config=json.loads(config.to_json_best_effort()),
    report=print_note,
    sparse_plan=experiment.sparse_training_plan(scaffold),
    watch=make_watcher(config.probe, config.calibration, experiment),
    watch_every=config.probe.every,
    mesh=mesh.make(config.mesh, config.seeds, config.train.batch_size),
  )


def inspect_scaffold(
  experiment: Experiment, scaffold: dict, lengths: Sequence[int]
) -> list[str]:
  """Returns a line for each site where rows have nothing open.

  Args:
    experiment: The experiment that the scaffold is for.
    scaffold: Lines or matrices by site, with a leading axis R or 1.
    lengths: The test lengths that it must cover.

  Raises:
    UsageError: It does not fit the model, or shows the future: site, layer,
      head and cell are named.
  """
  if "self" in scaffold and not experiment.bias.allow_leak:
    leak = scaffold["self"].first_leak()
    if leak is not None:
      seed, layer, head, row, column = leak
      raise UsageError(
        f"bias leaks the future: site self, seed {seed}, layer {layer}, head"
        f" {head}, row {row} sees column {column}; repair it, or ask for it by"
        " --config.bias.allow_leak=true"
      )
  if not scaffold:
    return []
  for length in lengths:
    experiment.check_scaffold(experiment.test_width(length), scaffold)
  num_seeds = max(len(jax.tree.leaves(tree)[0]) for tree in scaffold.values())
  seed_scaffolds = [lines.of_seed(scaffold, r) for r in range(num_seeds)]
  widest = dataset.Part(len(experiment.data[0].lengths.buckets) - 1, 1)
  notes = []
  for width_index in range(experiment.num_widths):  # at every width of training
    key, head = jax.random.key(0), experiment.task.name
    batch = experiment.sample(key, head, widest, width_index)
    scored_T = np.asarray(batch.weight[0]) > 0
    closed_masks = [_closed_rows(experiment, x, batch) for x in seed_scaffolds]
    for site in sorted(closed_masks[0]):
      closed_count = sum(
        int(x[site][..., scored_T].sum()) for x in closed_masks
      )
      if closed_count:
        notes.append(
          f"bias: {closed_count} rows of {site}-attention have nothing open"
          f" among {int(scored_T.sum())} outputs; their context is zero"
        )
  return notes


@partial(jax.jit, static_argnums=0)
def _closed_rows(
  experiment: Experiment, scaffold: dict, batch: Batch
) -> dict[str, jax.Array]:
  """Returns, by site, whether rows have no open cell with a seed's scaffold."""
  biases = experiment.sites(scaffold, batch).biases
  return {
    site: jnp.all(biases[site].values == kernel.CLOSED, axis=-1)
    for site in set(scaffold) - {"encoder"}
  }


def load(run: loop.Run, checkpoint: str | int) -> list[trained.Model]:
  """Loads the models of a trained run, one of each seed.

  Args:
    run: A training that was done.
    checkpoint: "last", "best" or the number of a step.
  """
  checkpoint = str(checkpoint)
  return trained.models(run, loop.load(run, checkpoint), checkpoint)


def initial_parameters(
  config: ConfigDict, training_run: loop.Run
) -> list | None:
  """Returns the parameters that each seed starts from.

  Returns:
    A pytree for each seed; None if every seed draws random parameters.

  Raises:
    UsageError: The model cannot have the parameters that config.initial names.
  """
  section = config.initial
  if section.kind == "random":
    return None
  params = weights.parameters(
    training_run.experiment, section.longest, section.copies
  )
  return [add_noise(params, seed, section.noise) for seed in training_run.seeds]


def add_noise(params: dict, seed: int, noise: float) -> dict:
  """Returns parameters plus normal noise.

  Args:
    params: A pytree of parameters.
    seed: The seed of the run, from which the noise is drawn.
    noise: The standard deviation.
  """
  flat, unravel = ravel_pytree(params)
  key = rng.stream(seed, "init")
  return unravel(flat + noise * jax.random.normal(key, flat.shape))


def practice_run(
  section: ConfigDict, run: loop.Run, folder: pathlib.Path
) -> loop.Run:
  """Returns the training of a round of practice.

  Args:
    section: The section config.practice.
    run: The training before any round.
    folder: The folder of the round, with the inputs of every seed that it
      trains.
  """
  practice = json.loads((folder / PRACTICE_INPUTS).read_text())
  seeds = tuple(map(int, practice))
  task = run.experiment.task
  longest = int(np.max(run.experiment.data[0].bound(0)))
  sets, lengths = [], []
  for inputs in practice.values():
    repeats = max(len(inputs["thin"]) // max(len(inputs["failing"]), 1), 1)
    # About as many inputs fail as have thin margins.
    texts = inputs["failing"] * repeats + inputs["thin"]
    items, sizes = zip(*map(task.parse, texts), strict=True)
    pad = lambda x: np.pad(x, [(0, 0), (0, longest - x.shape[1])])
    sets.append(np.stack(list(map(pad, items))))
    lengths.append(np.array(sizes, np.int32))
  size = max(map(len, sets))
  fill = lambda x: np.pad(x, [(0, size - len(x)), *[(0, 0)] * (x.ndim - 1)])
  seed_indices = [run.seeds.index(seed) for seed in seeds]
  return dataclasses.replace(
    run,
    seeds=seeds,
    scaffold=jax.tree.map(
      lambda x: x[seed_indices] if len(x) > 1 else x, run.scaffold
    ),
    folder=folder,
    replay={
      "items": np.stack(list(map(fill, sets))),
      "lengths": np.stack(list(map(fill, lengths))),
      "count": np.array(list(map(len, sets)), np.int32),
    },
    train=dataclasses.replace(
      run.train,
      steps=section.steps,
      learning_rate=section.learning_rate,
      replay_share=section.share,
      warmup_steps=min(20, section.steps),
      restarts=0,
      target_exact_match=2.0,
    ),
    mesh=run.mesh.for_seeds(len(seeds), run.train.batch_size),
  )
