"""Workdirs: whose they are, and the models in them."""

import json
import pathlib
import sys

from ml_collections import ConfigDict
from tqdm import tqdm

from lengthgen_jax import trained
from lengthgen_jax.attention.biases import file
from lengthgen_jax.config import saved, stages
from lengthgen_jax.config.build import build, make_scaffold
from lengthgen_jax.errors import check, reading
from lengthgen_jax.results import records
from lengthgen_jax.runs.check_bias import check_bias
from lengthgen_jax.training import loop
from lengthgen_jax.training.optimizer import TrainConfig

CONFIG_FILE = "config.json"
STAGES = ("interpolate", "calibrate", "retrain")


def report(line: str) -> None:
  """A line on standard error, above a progress bar if there is one."""
  tqdm.write(line, file=sys.stderr)


def quiet(line: str) -> None:
  """Nothing: what it says was said before."""


def prepare(config: ConfigDict, folder: pathlib.Path, say=quiet) -> loop.Run:
  """A config as a run, its scaffold checked against its model."""
  experiment = build(config)
  scaffold = make_scaffold(config, experiment)
  for note in check_bias(experiment, scaffold, config.eval.lengths):
    say(note)
  return loop.Run(
    experiment=experiment,
    train=TrainConfig(**config.train),
    seeds=tuple(config.seeds),
    scaffold=scaffold,
    folder=folder,
    save_every=config.checkpoint.every,
    keep=config.checkpoint.keep,
    config=json.loads(config.to_json_best_effort()),
    report=report,
  )


def load(run: loop.Run, checkpoint) -> list[trained.Model]:
  """The models of a trained run, one of each seed."""
  states = loop.load(run, str(checkpoint))
  return trained.models(
    run.experiment, run.scaffold, run.seeds, states, str(checkpoint)
  )


def open_workdir(config: ConfigDict, workdir: pathlib.Path, mode: str) -> None:
  """Creates the workdir, or checks that it is this config's and mode's.

  Raises:
    UsageError: it cannot be written, or belongs to another config or mode.
  """
  before = saved.saved_config(workdir)
  if before is not None:
    refuse_other(config, before, workdir)
    other = "train" if is_pipeline(workdir) else "abc"
    trained_there = (workdir / "checkpoints").is_dir() or is_pipeline(workdir)
    check(
      not trained_there or mode != other,
      f"--workdir={workdir} holds a run of --mode="
      f"{'abc' if other == 'train' else 'train'}: choose another workdir",
    )
  with reading(f"--workdir={workdir}: cannot write there"):
    text = config.to_json_best_effort(indent=2)
    records.write_text(workdir / CONFIG_FILE, text + "\n")


def check_trained(config: ConfigDict, workdir: pathlib.Path) -> None:
  """UsageError unless the workdir was trained with this config."""
  before = saved.saved_config(workdir)
  check(
    before is not None,
    f"--workdir={workdir}: nothing was trained there; run --mode=train first",
  )
  refuse_other(config, before, workdir)


def refuse_other(config: ConfigDict, before: ConfigDict, workdir) -> None:
  found = saved.differences(config, before)
  check(
    not found,
    f"--workdir={workdir} belongs to another config: {'; '.join(found)}."
    " Choose another workdir, or the config it was made with",
  )


def is_pipeline(workdir: pathlib.Path) -> bool:
  """Whether the workdir is one of --mode=abc."""
  return (workdir / STAGES[0]).is_dir()


def bias_path(workdir: pathlib.Path) -> pathlib.Path:
  return workdir / "calibrate" / "bias.npz"


def retrained(config: ConfigDict, workdir: pathlib.Path):
  """(config, Run) of the retrained model of a pipeline.

  Raises:
    UsageError: calibration was not run yet.
  """
  path = bias_path(workdir)
  check(
    path.exists(),
    f"--workdir={workdir}: no {path.name} yet; run --mode=abc to the end",
  )
  _, meta = file.read(path)
  new = stages.retrain_config(config, meta["seeds"], path)
  return new, prepare(new, workdir / "retrain")


def answering(config: ConfigDict, workdir: pathlib.Path):
  """(config, Run) of the model that answers: the retrained one of a
  pipeline."""
  if is_pipeline(workdir):
    return retrained(config, workdir)
  return config, prepare(config, workdir)


def open_model(folder, seed: int | None = None) -> trained.Model:
  """The model of a workdir; see lengthgen_jax.load."""
  folder = pathlib.Path(folder)
  config = saved.saved_config(folder)
  check(config is not None, f"{folder}: nothing was trained there")
  config, run = answering(config, folder)
  models = load(run, config.eval.checkpoint)
  if seed is None:
    return trained.best(models)
  found = [model for model in models if model.seed == seed]
  check(found, f"{folder} has seeds {run.seeds}, none of {seed}")
  return found[0]
