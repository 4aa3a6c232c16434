"""What lies where in a workdir, and the trained models that it holds.

  config.json       the run that it belongs to
  origin.json       the command, date, machine, versions and commit
  checkpoints/      of --mode=train
  interpolate/      of --mode=abc: the first training,
  calibrate/        its attention as a bias,
  retrain/          and the training with that bias
  finetune_1/ ...   the rounds of finetuning, with the inputs of each
  certificate.json  {seed: certificate}, which says what pruning closed
  results.jsonl     rows of tests and certificates

The workdir of a pretrained model has its results alone.
"""

import contextlib
import copy
import dataclasses
import datetime
import fcntl
import itertools
import json
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

from lengthgen_jax import hosts, origin
from lengthgen_jax.attention import lines
from lengthgen_jax.attention.biases import file
from lengthgen_jax.config import fields, files
from lengthgen_jax.errors import (
  UsageError,
  check,
  check_choice,
  file_errors,
  local_path,
  workdir_path,
)
from lengthgen_jax.evaluation import trained
from lengthgen_jax.pipelines import prune, runs
from lengthgen_jax.pretrained import files as pretrained
from lengthgen_jax.results import records
from lengthgen_jax.training import loop

CERTIFICATE = "certificate.json"
ORIGIN = "origin.json"


@contextlib.contextmanager
def lock(workdir: pathlib.Path) -> Iterator[None]:
  """Keeps other processes from writing in a workdir, which is made if missing.

  A process that ends, however it does, holds no lock. Of several hosts the
  first one alone has it."""
  if not hosts.is_primary():
    yield
    return
  is_new, path = not workdir.exists(), workdir / ".lock"
  with file_errors(f"--workdir={workdir}: cannot write there"):
    workdir.mkdir(parents=True, exist_ok=True)
    file = path.open("w", encoding="utf-8")
  with file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      raise UsageError(
        f"--workdir={workdir}: another process works in it; wait for its end,"
        " or choose another workdir"
      ) from error
    except OSError:
      pass  # this file system has no locks
    try:
      yield
    finally:
      if set(workdir.iterdir()) == {path}:  # the command was refused
        path.unlink()
        if is_new:
          workdir.rmdir()


# Whose a workdir is.


def is_of(config: ConfigDict, workdir: pathlib.Path) -> bool:
  """Returns whether a workdir is that of a config; False if it is nobody's."""
  saved_config = files.saved_config(workdir)
  if saved_config is None:
    return False
  model = saved_config.pretrained
  content = "a run that was trained there"
  if model:
    content = f"results of --model={model}"
  check(
    model == config.pretrained,
    f"--workdir={workdir} holds {content}: choose another workdir",
  )
  # A pretrained model's config is compared with its card (`load_trained`).
  differences = [] if model else files.differences(config, saved_config)
  more = f" and {len(differences) - 5} more" if len(differences) > 5 else ""
  check(
    not differences,
    f"--workdir={workdir} belongs to another config: "
    f"{'; '.join(differences[:5])}{more}."
    " Choose another workdir, or the config it was made with",
  )
  return True


def open_workdir(config: ConfigDict, workdir: pathlib.Path, mode: str) -> None:
  """Makes a workdir this config's, unless it is already: of a training in one
  of the modes "train" and "abc", or of results of a pretrained model."""
  is_own = is_of(config, workdir)
  if config.pretrained:
    check(
      is_own or not workdir.is_dir() or not any(workdir.iterdir()),
      f"--workdir={workdir} is not empty, and not of --model="
      f"{config.pretrained}: name another --workdir for the results",
    )
  for other, part in (("abc", "interpolate"), ("train", "checkpoints")):
    check(
      mode == other or not (is_own and (workdir / part).is_dir()),
      f"--workdir={workdir} holds a run of --mode={other}: choose another"
      " workdir",
    )
  with file_errors(f"--workdir={workdir}: cannot write there"):
    text = config.to_json_best_effort(indent=2)
    records.write_text(workdir / "config.json", text + "\n")
  path = workdir / ORIGIN
  if hosts.is_primary() and not config.pretrained and not path.exists():
    run_origin = {
      "command": sys.argv[1:],
      "date": datetime.date.today().isoformat(),
      **origin.describe(jax.devices()[0].device_kind),
    }
    records.write_text(path, json.dumps(run_origin, indent=1) + "\n")


def is_abc(workdir: pathlib.Path) -> bool:
  """Returns whether the workdir was made by --mode=abc."""
  return (workdir / "interpolate").is_dir()


def bias_path(workdir: pathlib.Path) -> pathlib.Path:
  """Returns the path of the bias that --mode=abc or calibrate writes."""
  return workdir / "calibrate" / "bias.npz"


def read_certificates(workdir: pathlib.Path) -> dict[str, dict]:
  """Returns {str(seed): certificate}, {} if nothing was certified."""
  path = workdir / CERTIFICATE
  if not path.exists():
    return {}
  with file_errors(f"{path}: cannot be read"):
    return {} | json.loads(path.read_text(encoding="utf-8"))


# What was trained there.


class Stage(NamedTuple):
  """A Stage is a part of a workdir's training, with a config of its own.

  Attributes:
    name: "train" in a workdir of --mode=train, "interpolate" or "retrain" in
      one of --mode=abc, and "finetune" for the rounds of finetuning after
      "train" or "retrain". Of a pretrained model, the stage that trained it.
    config: the whole config of the stage.
    run: its training; of "finetune", that before the first round.
    num_seeds: how many seeds the user's config names; a stage may train fewer.
    models: one of each seed.
    certificates: {seed: certificate} of the models that have one."""

  name: str
  config: ConfigDict
  run: loop.Run
  num_seeds: int
  models: list[trained.Model] = []
  certificates: dict[int, dict] = {}


def stage_names(config: ConfigDict, workdir: pathlib.Path) -> list[str]:
  """Returns the names of a workdir's stages, in their order."""
  if config.pretrained:
    return [pretrained.read(config.pretrained)[0]["data_sheet"]["stage"]]
  check(
    is_of(config, workdir),
    f"--workdir={workdir}: nothing was trained there; run --mode=train first",
  )
  names = ["interpolate", "retrain"] if is_abc(workdir) else ["train"]
  return names + ["finetune"] * any(rounds(workdir))


def rounds(workdir: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields the folders of the rounds of finetuning that have a checkpoint."""
  folders = (workdir / f"finetune_{n}" for n in itertools.count(1))
  has_step = lambda folder: any((folder / "checkpoints").glob("[0-9]*[0-9]"))
  return itertools.takewhile(has_step, folders)


def load_stage(
  config: ConfigDict, workdir: pathlib.Path, name: str = ""
) -> Stage:
  """Loads a stage, by default the last one, with the certificates that hold;
  its models lack the lines that these say are closed."""
  stage = load_trained(config, workdir, name)
  models, certificates, saved = [], {}, read_certificates(workdir)
  for model in stage.models:
    certificate = saved.get(str(model.seed), {})
    pruned = prune.without_closed(config.prune, model, certificate)
    if certificate.get("checksum") == pruned.checksum:
      model, certificates[model.seed] = pruned, certificate
    models.append(model)
  return stage._replace(models=models, certificates=certificates)


def load_trained(
  config: ConfigDict, workdir: pathlib.Path, name: str = ""
) -> Stage:
  """Loads a stage as `load_stage`, but with all lines that its models were
  trained with, and without certificates."""
  if config.pretrained:
    return _pretrained_stage(config, workdir)
  names = stage_names(config, workdir)
  name = name or names[-1]
  if name == "finetune":
    stage = load_trained(config, workdir, names[-2])
    for folder in rounds(workdir):
      run = runs.finetuning_run(config.finetune, stage.run, folder)
      stage = after_round(stage, run)
    return stage
  num_seeds = len(config.seeds)
  if name == "retrain":
    config, run = retraining(config, workdir)
  else:
    folder = workdir if name == "train" else workdir / name
    run = runs.make_run(config, folder)
  models = runs.load(run, config.eval.checkpoint)
  return Stage(name, config, run, num_seeds, models)


def retraining(
  config: ConfigDict, workdir: pathlib.Path
) -> tuple[ConfigDict, loop.Run]:
  """Returns the config and the training run of the stage "retrain"."""
  path = bias_path(workdir)
  check(
    path.exists(),
    f"--workdir={workdir}: no {path.name} yet; run --mode=abc to the end",
  )
  _, meta = file.read(path)
  config = fields.retrain_config(config, meta["seeds"], path)
  return config, runs.make_run(config, workdir / "retrain")


def after_round(stage: Stage, run: loop.Run) -> Stage:
  """Returns the stage after a round of finetuning that was trained: its seeds
  have the parameters of the round, and the steps of all their runs."""
  models = {model.seed: model for model in stage.models}
  for model in runs.load(run, stage.config.eval.checkpoint):
    before = models[model.seed]
    stopped_at = before.stopped_at
    if model.stopped_at >= 0:  # this round diverged
      stopped_at = before.step + model.stopped_at
    models[model.seed] = dataclasses.replace(
      model,
      experiment=before.experiment,  # without the round's counterexamples
      step=before.step + model.step,
      stopped_at=stopped_at,
    )
  config = copy.deepcopy(stage.config)
  config.method = f"{config.method.removesuffix('+finetune')}+finetune"
  return stage._replace(
    name="finetune", config=config, models=list(models.values())
  )


def _pretrained_stage(config: ConfigDict, workdir: pathlib.Path) -> Stage:
  """Returns the stage that trained a pretrained model."""
  model_config = pretrained.get_config(config.pretrained)
  config = copy.deepcopy(config)
  # A saved config may have the path of before the package was moved.
  config.bias.file = model_config.bias.file
  differences = files.differences(config, model_config)
  check(
    not differences,
    f"--model={config.pretrained} has a config of its own:"
    f" {'; '.join(differences)}",
  )
  checkpoint, exported = config.eval.checkpoint, model_config.eval.checkpoint
  check(
    checkpoint == exported,
    f"eval.checkpoint={checkpoint!r}: --model={config.pretrained} has"
    f" {exported!r} alone",
  )
  sheet = pretrained.read(config.pretrained)[0]["data_sheet"]
  run = runs.make_run(config, workdir)
  model = trained.Model(
    run.experiment,
    lines.of_seed(run.scaffold, 0),
    pretrained.read_params(config.pretrained, run.experiment),
    seed=run.seeds[0],
    step=sheet["step"],
    stopped_at=sheet["stopped_at"],
    em=sheet["validation_exact_match"],
    mesh=run.mesh.for_one_seed(),
  )
  return Stage(sheet["stage"], config, run, 1, [model])


# From Python.


@dataclasses.dataclass(frozen=True)
class LoadedModel:
  """A LoadedModel is a trained model as lengthgen_jax.load returns it.

  Attributes:
    model: the model with its parameters, lines and experiment.
    config: the whole config of the stage that trained it.
    certificate: what --mode=certify found; None if the model was not certified,
      and `pretrained.files.OTHER_MODEL` if a card's is of another model.
    data_sheet: how a pretrained model was made, and its test results; None for
      a model that was trained in a workdir."""

  model: trained.Model
  config: ConfigDict = dataclasses.field(repr=False)
  certificate: dict[str, Any] | None = dataclasses.field(repr=False)
  data_sheet: dict[str, Any] | None = dataclasses.field(repr=False)

  def predict(self, texts: str | Iterable[str]) -> str | list[str]:
    """Returns the answer to an input text, or a list of those to several.

    An input that the model cannot answer gets "error: " and the reason."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
      return self.model.answers([texts])[0]
    return self.model.answers(texts)


def load(
  source: str | pathlib.Path, seed: int | None = None, stage: str = ""
) -> LoadedModel:
  """Loads a trained model: this is lengthgen_jax.load."""
  workdir, name = local_path("load", source), str(source)
  config = files.saved_config(workdir)
  if name in pretrained.names():
    check(
      config is None or config.pretrained == name,
      f"{name} is a model of the package, and a workdir of something else: for"
      f" the workdir, write ./{name}",
    )
    config = pretrained.get_config(name)
  elif config is None and pathlib.Path(f"{workdir}.json").is_file():
    config = pretrained.get_config(str(workdir.resolve()))
  if config is None:
    raise UsageError(
      f"{source}: nothing was trained there; models of the package are"
      f" {', '.join(pretrained.names())}"
    )
  if not config.pretrained:
    workdir_path("load", workdir)
  names = stage_names(config, workdir)
  check_choice("stage", stage or names[-1], names)
  loaded = load_stage(config, workdir, stage)
  models = {model.seed: model for model in loaded.models}
  best = trained.best(loaded.models).seed
  seed = best if seed is None else seed
  check(
    seed in models, f"seed={seed}: {source} has {', '.join(map(str, models))}"
  )
  certificate, sheet = loaded.certificates.get(seed), None
  if config.pretrained:
    card, _ = pretrained.read(config.pretrained)
    certificate, sheet = card["certificate"], card["data_sheet"]
  return LoadedModel(models[seed], loaded.config, certificate, sheet)
