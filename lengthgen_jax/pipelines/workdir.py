"""Workdirs: which config one belongs to, and the models that it holds."""

import copy
import dataclasses
import json
import pathlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict
from tqdm import tqdm

from lengthgen_jax import hosts
from lengthgen_jax.attention import kernel, lines
from lengthgen_jax.attention.biases import file
from lengthgen_jax.config import build, fields, files
from lengthgen_jax.errors import UsageError, check, file_errors
from lengthgen_jax.evaluation import trained
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines import replay
from lengthgen_jax.pipelines.training_probes import make_watcher
from lengthgen_jax.results import records
from lengthgen_jax.tasks import mixing
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.training import loop, mesh, optimizer


def print_note(line: str) -> None:
  """Prints a line on the first host's standard error, above a progress bar."""
  if hosts.is_primary():
    tqdm.write(line, file=sys.stderr)


def make_run(
  config: ConfigDict,
  folder: pathlib.Path,
  on_note: Callable[[str], None] = lambda note: None,
) -> loop.Run:
  """Returns the training that a config describes.

  Args:
    config: A whole config.
    folder: Where the checkpoints and logs of the training go.
    on_note: A function of one line of text, called for everything that is odd
      about the scaffold.
  """
  if "float64" in (config.model.dtype, config.retrain.model.dtype):
    jax.config.update("jax_enable_x64", True)  # for all stages of the process
  experiment = build.build(config)
  scaffold = build.make_scaffold(config, experiment)
  for note in check_bias(experiment, scaffold, config.eval.lengths):
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


def check_bias(
  experiment: Experiment, scaffold: dict, lengths: Sequence[int]
) -> list[str]:
  """Refuses a scaffold that does not fit the model or shows the future.

  Args:
    experiment: The experiment that the scaffold is meant for.
    scaffold: Lines or matrices by site, with a leading axis R or 1.
    lengths: The test lengths that it must cover.

  Returns:
    Notes on rows that have no open cell, one line of text each.

  Raises:
    UsageError: The scaffold is refused; the message names the site, layer, head
      and cell.
  """
  if "self" in scaffold and not experiment.bias.allow_leak:
    leak = scaffold["self"].leak()
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
  widest = mixing.Part(len(experiment.data[0].lengths.buckets) - 1, 1)
  notes = []
  for width_index in range(experiment.num_widths):  # at every width of training
    key, head = jax.random.key(0), experiment.task.name
    batch = experiment.sample(key, head, widest, width_index)
    scored_T = np.asarray(batch.weight[0]) > 0
    closed_masks = [
      _closed_rows(experiment, tree, batch) for tree in seed_scaffolds
    ]
    for site in sorted(closed_masks[0]):
      closed_count = sum(
        int(tree[site][..., scored_T].sum()) for tree in closed_masks
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


def open_workdir(config: ConfigDict, workdir: pathlib.Path, mode: str) -> None:
  """Creates the workdir, or checks that it belongs to this config and mode.

  Raises:
    UsageError: It cannot be written, or belongs to another config or mode.
  """
  if has_this_config(config, workdir):
    pipeline = is_pipeline(workdir)
    holds = "abc" if pipeline else "train"
    check(
      mode == holds or not (pipeline or (workdir / "checkpoints").is_dir()),
      f"--workdir={workdir} holds a run of --mode={holds}: choose another"
      " workdir",
    )
  with file_errors(f"--workdir={workdir}: cannot write there"):
    text = config.to_json_best_effort(indent=2)
    records.write_text(workdir / "config.json", text + "\n")


def check_trained(config: ConfigDict, workdir: pathlib.Path) -> None:
  """Checks that the workdir was trained with this config.

  Raises:
    UsageError: It was not.
  """
  check(
    has_this_config(config, workdir),
    f"--workdir={workdir}: nothing was trained there; run --mode=train first",
  )


def has_this_config(config: ConfigDict, workdir: pathlib.Path) -> bool:
  """Returns whether there is a config in the workdir.

  Raises:
    UsageError: There is, and it is another one.
  """
  previous = files.saved_config(workdir)
  if previous is None:
    return False
  differences = files.differences(config, previous)
  check(
    not differences,
    f"--workdir={workdir} belongs to another config: {'; '.join(differences)}."
    " Choose another workdir, or the config it was made with",
  )
  return True


def is_pipeline(workdir: pathlib.Path) -> bool:
  """Returns whether the workdir is one of --mode=abc."""
  return (workdir / "interpolate").is_dir()


def bias_path(workdir: pathlib.Path) -> pathlib.Path:
  """Returns the path of a workdir's calibrated bias."""
  return workdir / "calibrate" / "bias.npz"


def retraining_stage(
  config: ConfigDict, workdir: pathlib.Path
) -> tuple[ConfigDict, loop.Run]:
  """Returns the config and the training of a pipeline's second stage.

  Raises:
    UsageError: The calibration was not run yet.
  """
  path = bias_path(workdir)
  check(
    path.exists(),
    f"--workdir={workdir}: no {path.name} yet; run --mode=abc to the end",
  )
  _, meta = file.read(path)
  retrain_config = fields.retrain_config(config, meta["seeds"], path)
  return retrain_config, make_run(retrain_config, workdir / "retrain")


class Stage(NamedTuple):
  """A Stage is what was trained in one of the stages of a workdir.

  Attributes:
    name: "train", or "interpolate" and "retrain"; then "certify".
    config: The whole config of the stage.
    runs: The trainings of the stage, in order. Of "certify", the first is the
      one before all rounds of practice; each round has the seeds that were
      trained again.
    unmended: The seeds of which the first run alone counts.
  """

  name: str
  config: ConfigDict
  runs: tuple[loop.Run, ...]
  unmended: tuple[int, ...] = ()

  def models(self) -> list[trained.Model]:
    """Loads one model of each seed; its step counts all runs that it had."""
    first, *later = self.runs
    checkpoint = self.config.eval.checkpoint
    models_by_seed = {model.seed: model for model in load(first, checkpoint)}
    for model in (
      practiced for run in later for practiced in load(run, checkpoint)
    ):
      if model.seed not in self.unmended:
        step = models_by_seed[model.seed].step + model.step
        models_by_seed[model.seed] = dataclasses.replace(model, step=step)
    return list(models_by_seed.values())


def trained_stages(
  config: ConfigDict, workdir: pathlib.Path, rounds: int | None = None
) -> list[Stage]:
  """Returns the stages that were trained in a workdir; the last one answers.

  Args:
    config: The config of the workdir.
    workdir: The workdir.
    rounds: How many rounds of practice count; None stands for all rounds, of
      the seeds that they mended.

  Raises:
    UsageError: The workdir was not trained with this config.
  """
  check_trained(config, workdir)
  if is_pipeline(workdir):
    interpolation = make_run(config, workdir / "interpolate")
    stage_config, trained_run = retraining_stage(config, workdir)
    stage_list = [Stage("interpolate", config, (interpolation,))]
    stage_list.append(Stage("retrain", stage_config, (trained_run,)))
  else:
    stage_config, trained_run = config, make_run(config, workdir)
    stage_list = [Stage("train", stage_config, (trained_run,))]
  practice_runs = [
    replay.practice_run(config.practice, trained_run, path.parent)
    for path in sorted(
      workdir.glob(f"certify_*/{replay.INPUTS}"),
      key=lambda path: int(path.parent.name.partition("_")[2]),
    )[:rounds]
    if (path.parent / "checkpoints").is_dir()
  ]
  if practice_runs:
    stage_config = copy.deepcopy(stage_config)
    stage_config.method += "+certify"
    path, unmended = workdir / replay.UNMENDED, ()
    if rounds is None and path.exists():
      unmended = tuple(json.loads(path.read_text()))
    stage_list.append(
      Stage("certify", stage_config, (trained_run, *practice_runs), unmended)
    )
  return stage_list


def answering_models(
  config: ConfigDict, workdir: pathlib.Path
) -> list[trained.Model]:
  """Loads the models that answer, one of each seed."""
  return trained_stages(config, workdir)[-1].models()


def open_model(
  folder: str | pathlib.Path, seed: int | None = None
) -> trained.Model:
  """Loads a model of a workdir; see lengthgen_jax.load.

  Args:
    folder: The workdir.
    seed: The seed of the model; None stands for the best one by validation.

  Raises:
    UsageError: Nothing was trained there, or no such seed.
  """
  config = files.saved_config(folder)
  check(config is not None, f"{folder}: nothing was trained there")
  models_by_seed = {
    model.seed: model
    for model in answering_models(config, pathlib.Path(folder))
  }
  if seed is None:
    return trained.best(list(models_by_seed.values()))
  check(
    seed in models_by_seed,
    f"{folder} has seeds {tuple(models_by_seed)}, none of {seed}",
  )
  return models_by_seed[seed]
