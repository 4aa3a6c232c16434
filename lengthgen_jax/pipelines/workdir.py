"""This module opens a workdir, and loads the trained models that it holds.

A workdir is the folder of one run; its config.json says which config it belongs
to. The workdir of a pretrained model has its results alone.
"""

import contextlib
import copy
import dataclasses
import datetime
import errno
import fcntl
import functools
import json
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
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

TRAINING_INPUTS = "inputs.json"  # of a round of finetuning, by seed
# The inputs of a round of finetuning are padded to at least so many; most
# rounds have fewer.
LEAST_REPLAY_SIZE = 4096
STILL_WRONG = "still_wrong.json"  # the seeds that are wrong after all rounds
CERTIFICATE = "certificate.json"  # has a certificate for each seed
ORIGIN = "origin.json"  # the command, date, machine, versions and commit
LOCK = ".lock"


@contextlib.contextmanager
def lock(workdir: pathlib.Path) -> Iterator[None]:
  """Keeps other processes from writing in a workdir, which is made if missing.

  A process that ends, however it does, holds no lock. Of several hosts the
  first one alone has it.

  Raises:
    UsageError: another process has the lock, or the workdir cannot be written.
  """
  if not hosts.is_primary():
    yield
    return
  is_new, path = not workdir.exists(), workdir / LOCK
  with file_errors(f"--workdir={workdir}: cannot write there"):
    workdir.mkdir(parents=True, exist_ok=True)
    if not os.access(workdir, os.W_OK):
      raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
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


def open_workdir(config: ConfigDict, workdir: pathlib.Path, mode: str) -> None:
  """Creates the workdir of a training, or checks that it was made with this
  config and, once a training has begun there, in this mode.

  It writes config.json, and origin.json where there is none.

  Args:
    config: the whole config of the run.
    workdir: the workdir.
    mode: "train" or "abc".

  Raises:
    UsageError: it cannot be written, belongs to another config or mode, or
      holds results of a pretrained model.
  """
  check_usable(workdir, "")
  if has_config(config, workdir):
    saved_mode = "abc" if is_abc(workdir) else "train"
    is_trained = is_abc(workdir) or (workdir / "checkpoints").is_dir()
    check(
      mode == saved_mode or not is_trained,
      f"--workdir={workdir} holds a run of --mode={saved_mode}: choose another"
      " workdir",
    )
  write_config(config, workdir)
  path = workdir / ORIGIN
  if hosts.is_primary() and not path.exists():
    run_origin = {
      "command": sys.argv[1:],
      "date": datetime.date.today().isoformat(),
      **origin.describe(jax.devices()[0].device_kind),
    }
    records.write_text(path, json.dumps(run_origin, indent=1) + "\n")


def write_config(config: ConfigDict, workdir: pathlib.Path) -> None:
  """Writes a workdir's config.json.

  Raises:
    UsageError: it cannot be written.
  """
  with file_errors(f"--workdir={workdir}: cannot write there"):
    text = config.to_json_best_effort(indent=2)
    records.write_text(workdir / "config.json", text + "\n")


def check_usable(workdir: pathlib.Path, model: str) -> None:
  """Checks that a workdir has no config yet, or belongs to the same model.

  Args:
    workdir: the workdir.
    model: config.pretrained, the name or path of a pretrained model; "" if the
      workdir is to hold a training.

  Raises:
    UsageError: the workdir belongs to a training, or to a pretrained model, and
      should not.
  """
  saved_config = files.saved_config(workdir)
  if saved_config is None or saved_config.pretrained == model:
    return
  content = "a run that was trained there"
  if saved_config.pretrained:
    content = f"results of --model={saved_config.pretrained}"
  wanted = f"--model={model}" if model else "this run"
  raise UsageError(
    f"--workdir={workdir} holds {content}, not {wanted}: choose another workdir"
  )


def open_pretrained(config: ConfigDict, workdir: pathlib.Path) -> None:
  """Creates the workdir for results of a pretrained model, or checks that it
  holds results of the same model; either way it writes config.json.

  Raises:
    UsageError: it cannot be written, or holds something else.
  """
  check_usable(workdir, config.pretrained)
  is_used = workdir.is_dir() and any(workdir.iterdir())
  check(
    (workdir / "config.json").exists() or not is_used,
    f"--workdir={workdir} is not empty, and not of --model="
    f"{config.pretrained}: name another --workdir for the results",
  )
  write_config(config, workdir)


def check_trained(config: ConfigDict, workdir: pathlib.Path) -> None:
  """Checks that a training was begun in the workdir, with this config.

  Raises:
    UsageError: the workdir has no config, or another one.
  """
  check(
    has_config(config, workdir),
    f"--workdir={workdir}: nothing was trained there; run --mode=train first",
  )


def has_config(config: ConfigDict, workdir: pathlib.Path) -> bool:
  """Returns whether the workdir has a config; it must agree with `config`.

  Raises:
    UsageError: another config is saved there.
  """
  saved_config = files.saved_config(workdir)
  if saved_config is None:
    return False
  differences = files.differences(config, saved_config)
  check(
    not differences,
    f"--workdir={workdir} belongs to another config: {'; '.join(differences)}."
    " Choose another workdir, or the config it was made with",
  )
  return True


def is_abc(workdir: pathlib.Path) -> bool:
  """Returns whether the workdir was made by --mode=abc."""
  return (workdir / "interpolate").is_dir()


def bias_path(workdir: pathlib.Path) -> pathlib.Path:
  """Returns the path of the bias that --mode=abc or calibrate writes."""
  return workdir / "calibrate" / "bias.npz"


def retraining_stage(
  config: ConfigDict, workdir: pathlib.Path
) -> tuple[ConfigDict, loop.Run]:
  """Returns the config and the training run of the "retrain" stage.

  Args:
    config: the config of a workdir of --mode=abc.
    workdir: the workdir.

  Raises:
    UsageError: its bias was not calibrated yet.
  """
  path = bias_path(workdir)
  check(
    path.exists(),
    f"--workdir={workdir}: no {path.name} yet; run --mode=abc to the end",
  )
  _, meta = file.read(path)
  retrain_config = fields.retrain_config(config, meta["seeds"], path)
  return retrain_config, runs.make_run(retrain_config, workdir / "retrain")


def round_number(folder: pathlib.Path) -> int:
  """Returns the number N of a round of finetuning, from its folder's name
  finetune_N."""
  return int(folder.name.partition("_")[2])


def finetuning_run(
  section: ConfigDict, run: loop.Run, folder: pathlib.Path
) -> loop.Run:
  """Returns the training run of a round of finetuning, for the seeds in the
  round's file TRAINING_INPUTS.

  A share of the main task's examples is drawn from these inputs, all others as
  in `run`. The learning rate is lower in later rounds if the section says so.
  The result has no initial parameters: who trains it gives them to loop.train,
  those of the round before or, in the first round, those of `run`.

  Args:
    section: the section `finetune` of the config.
    run: the training run before the first round, whose experiment, scaffold and
      other settings the round has.
    folder: the folder of the round, finetune_N; its file TRAINING_INPUTS is
      {str(seed): {"failing": texts, "thin": texts}}.
  """
  inputs_by_seed = json.loads(
    (folder / TRAINING_INPUTS).read_text(encoding="utf-8")
  )
  seeds = tuple(map(int, inputs_by_seed))
  task = run.experiment.task
  # All examples have one static size, because there is one bucket at most
  # (finetune.check_config).
  longest = int(np.max(run.experiment.data[0].bound(0)))
  items_by_seed, lengths_by_seed = [], []
  for inputs in inputs_by_seed.values():
    # Inputs that fail are repeated, so that they are about as many as those
    # with thin margins.
    repeats = max(len(inputs["thin"]) // max(len(inputs["failing"]), 1), 1)
    texts = inputs["failing"] * repeats + inputs["thin"]
    items, lengths = zip(*map(task.parse, texts), strict=True)
    padded = np.zeros((len(items), len(items[0]), longest), items[0].dtype)
    for row, operands in zip(padded, items, strict=True):
      row[:, : operands.shape[1]] = operands
    items_by_seed.append(padded)
    lengths_by_seed.append(np.array(lengths, np.int32))
  counts = list(map(len, items_by_seed))
  # Rounds differ in how many inputs they have. They are padded to a few sizes,
  # so that rounds of equally many seeds with one learning rate mostly share a
  # compiled program; padding is never drawn.
  padded_size = max(1 << (max(counts) - 1).bit_length(), LEAST_REPLAY_SIZE)

  def stack(arrays: list[np.ndarray]) -> np.ndarray:
    """Stacks the arrays [inputs, ...] of the seeds, padded to an equal size."""
    pad = lambda x: [(0, padded_size - len(x)), *[(0, 0)] * (x.ndim - 1)]
    return np.stack([np.pad(x, pad(x)) for x in arrays])

  decay = section.rate_decay ** (round_number(folder) - 1)
  learning_rate = section.learning_rate * decay
  seed_indices = [run.seeds.index(seed) for seed in seeds]
  return dataclasses.replace(
    run,
    seeds=seeds,
    scaffold=jax.tree.map(
      lambda x: x[seed_indices] if len(x) > 1 else x, run.scaffold
    ),
    folder=folder,
    replay={
      "items": stack(items_by_seed),
      "lengths": stack(lengths_by_seed),
      "count": np.array(counts, np.int32),
    },
    train=dataclasses.replace(
      run.train,
      steps=section.steps,
      learning_rate=learning_rate,
      adam_learning_rate=run.train.adam_learning_rate
      * (learning_rate / run.train.learning_rate),
      replay_share=section.share,
      warmup_steps=min(20, section.steps),
      restarts=0,
      target_exact_match=2.0,  # never reached, so that all steps are taken
    ),
    mesh=run.mesh.for_seeds(len(seeds), run.train.batch_size),
  )


@dataclasses.dataclass(frozen=True)
class Stage:
  """A Stage is a part of a workdir's training, with a config of its own.

  Attributes:
    name: "train" in a workdir of --mode=train, "interpolate" or "retrain" in
      one of --mode=abc, and "finetune" for the rounds of finetuning after
      "train" or "retrain". Of a pretrained model, the stage that trained it.
    config: the whole config of the stage.
    runs: the training runs in order. Those of "finetune" are the run before
      it, then one for each round, of the seeds that were wrong.
    num_seeds: how many seeds the user's config names; a stage may train fewer.
    still_wrong: the seeds that are still wrong after finetuning; their models
      are those of the first run.
    certificates: {str(seed): certificate}, which say what pruning closed.
  """

  name: str
  config: ConfigDict
  runs: tuple[loop.Run, ...]
  num_seeds: int
  still_wrong: tuple[int, ...] = ()
  certificates: dict[str, dict] = dataclasses.field(default_factory=dict)

  @functools.cached_property
  def models(self) -> list[trained.Model]:
    """The `trained_models`, without the lines that pruning closed."""
    return [
      prune.without_closed(
        self.config.prune, model, self.certificates.get(str(model.seed), {})
      )
      for model in self.trained_models
    ]

  @functools.cached_property
  def trained_models(self) -> list[trained.Model]:
    """One model of each seed, loaded from the last run that trained it, with
    all lines that it was trained with.

    Its step is the sum of the steps of its runs, from the first of which its
    `stopped_at` is counted too. Seeds in `still_wrong` have the model of the
    first run.

    Raises:
      UsageError: a run has no checkpoint, or none of eval.checkpoint; if that
        is the number of a step, every run must have a checkpoint of it.
    """
    if self.config.pretrained:
      return [_pretrained_model(self.config, self.runs[0])]
    first, *rounds = self.runs
    checkpoint = self.config.eval.checkpoint
    models_by_seed = {
      model.seed: model for model in runs.load(first, checkpoint)
    }
    for finetuning in rounds:
      for model in runs.load(finetuning, checkpoint):
        if model.seed not in self.still_wrong:
          before = models_by_seed[model.seed]
          stopped_at = before.stopped_at
          if model.stopped_at >= 0:  # this round diverged
            stopped_at = before.step + model.stopped_at
          models_by_seed[model.seed] = dataclasses.replace(
            model, step=before.step + model.step, stopped_at=stopped_at
          )
    return list(models_by_seed.values())


def trained_stages(
  config: ConfigDict, workdir: pathlib.Path, rounds: int | None = None
) -> list[Stage]:
  """Returns the stages of a workdir; the last one has its final models.

  Args:
    config: the config of the workdir.
    workdir: the workdir.
    rounds: how many rounds of finetuning to include. None includes all, but
      seeds that are still wrong after them have the models from before (see
      `Stage.still_wrong`).

  Raises:
    UsageError: the workdir has no config, or another one; the bias of
      --mode=abc is not calibrated yet; or the config or eval.checkpoint is not
      that of the pretrained model.
  """
  if config.pretrained:
    return [_pretrained_stage(config, workdir)]
  check_trained(config, workdir)
  num_seeds, certificates = len(config.seeds), read_certificates(workdir)
  if is_abc(workdir):
    interpolation = runs.make_run(config, workdir / "interpolate")
    stage_config, trained_run = retraining_stage(config, workdir)
    stages = [Stage("interpolate", config, (interpolation,), num_seeds)]
    name = "retrain"
  else:
    stage_config, trained_run = config, runs.make_run(config, workdir)
    stages, name = [], "train"
  args = num_seeds, (), certificates
  stages.append(Stage(name, stage_config, (trained_run,), *args))
  round_folders = sorted(
    (path.parent for path in workdir.glob(f"finetune_*/{TRAINING_INPUTS}")),
    key=round_number,
  )
  finetuning_runs = [
    finetuning_run(config.finetune, trained_run, folder)
    for folder in round_folders[:rounds]
    if (folder / "checkpoints").is_dir()
  ]
  if finetuning_runs:
    stage_config = copy.deepcopy(stage_config)
    stage_config.method += "+finetune"
    path, still_wrong = workdir / STILL_WRONG, ()
    if rounds is None and path.exists():
      still_wrong = tuple(json.loads(path.read_text(encoding="utf-8")))
    all_runs = trained_run, *finetuning_runs
    args = num_seeds, still_wrong, certificates
    stages.append(Stage("finetune", stage_config, all_runs, *args))
  return stages


def _pretrained_stage(config: ConfigDict, workdir: pathlib.Path) -> Stage:
  """Returns the stage that trained a pretrained model.

  Args:
    config: the model's config; only CHANGEABLE fields (config/files.py) may
      have other values.
    workdir: where results go.

  Raises:
    UsageError: the config or eval.checkpoint is not the model's.
  """
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
  checkpoint = config.eval.checkpoint
  exported_checkpoint = model_config.eval.checkpoint
  check(
    checkpoint == exported_checkpoint,
    f"eval.checkpoint={checkpoint!r}: --model={config.pretrained} has"
    f" {exported_checkpoint!r} alone",
  )
  card, _ = pretrained.read(config.pretrained)
  run = runs.make_run(config, workdir)
  certificates, name = read_certificates(workdir), card["data_sheet"]["stage"]
  return Stage(name, config, (run,), 1, (), certificates)


def _pretrained_model(config: ConfigDict, run: loop.Run) -> trained.Model:
  """Returns the model of a pretrained stage."""
  sheet = pretrained.read(config.pretrained)[0]["data_sheet"]
  return trained.Model(
    run.experiment,
    lines.of_seed(run.scaffold, 0),
    pretrained.read_params(config.pretrained, run.experiment),
    seed=run.seeds[0],
    step=sheet["step"],
    stopped_at=sheet["stopped_at"],
    em=sheet["validation_exact_match"],
    mesh=run.mesh.for_one_seed(),
  )


def final_models(
  config: ConfigDict, workdir: pathlib.Path
) -> list[trained.Model]:
  """Loads the models of a workdir's last stage, one of each seed.

  Raises:
    UsageError: nothing was trained in the workdir, or with another config; the
      bias of --mode=abc is not calibrated yet; a run has no checkpoint, or none
      of eval.checkpoint; or the config is not that of the pretrained model.
  """
  return trained_stages(config, workdir)[-1].models


def read_certificates(workdir: pathlib.Path) -> dict[str, dict]:
  """Returns {str(seed): certificate} of a workdir's certificate.json, {} if
  there is none.

  Raises:
    UsageError: the file cannot be read.
  """
  path = workdir / CERTIFICATE
  if not path.exists():
    return {}
  with file_errors(f"{path}: cannot be read"):
    return json.loads(path.read_text(encoding="utf-8"))


def valid_certificates(
  models: Iterable[trained.Model], workdir: pathlib.Path
) -> dict[int, dict]:
  """Returns {seed: certificate} of the models that a workdir has a certificate
  of; one of the same seed but other parameters is left out.

  Raises:
    UsageError: certificate.json cannot be read.
  """
  certificates = read_certificates(workdir)
  return {
    model.seed: certificates[str(model.seed)]
    for model in models
    if certificates.get(str(model.seed), {}).get("checksum") == model.checksum
  }


@dataclasses.dataclass(frozen=True)
class LoadedModel:
  """A LoadedModel is a trained model as lengthgen_jax.load returns it.

  Attributes:
    model: the model with its parameters, lines and experiment.
    config: the whole config of the stage that trained it.
    certificate: what --mode=certify found; None if the model was not certified,
      and `pretrained.files.OTHER_MODEL` if a card's is of another model.
    data_sheet: how a pretrained model was made, and its test results; None for
      a model that was trained in a workdir.
  """

  model: trained.Model
  config: ConfigDict
  certificate: dict[str, Any] | None
  data_sheet: dict[str, Any] | None

  def predict(self, texts: str | Iterable[str]) -> str | list[str]:
    """Returns the answer to an input text, or a list of those to several.

    An input that the model cannot answer gets "error: " and the reason.

    Raises:
      ValueError: an input is no string.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
      return self.model.answers([texts])[0]
    return self.model.answers(texts)


def load(
  source: str | pathlib.Path, seed: int | None = None, stage: str = ""
) -> LoadedModel:
  """Loads a trained model; lengthgen_jax.load calls this.

  Args:
    source: a workdir, or NAME or FOLDER/NAME of a pretrained model.
    seed: the seed of the model; None chooses the best one by validation.
    stage: the stage that trained it, like "interpolate"; "" for the last one.

  Raises:
    UsageError: there is no trained model, or none of this seed or stage, or its
      files are damaged or below a path that cannot be used; or `source` is the
      name of a model of the package, and of a workdir of something else.
  """
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
  stages = {stage.name: stage for stage in trained_stages(config, workdir)}
  stage = stage or list(stages)[-1]
  check_choice("stage", stage, stages)
  chosen = stages[stage]
  models = {model.seed: model for model in chosen.models}
  check(
    seed is None or seed in models,
    f"seed={seed}: {source} has {', '.join(map(str, models))}",
  )
  model = trained.best(list(models.values())) if seed is None else models[seed]
  if config.pretrained:
    card, _ = pretrained.read(config.pretrained)
    sheet = card["data_sheet"]
    return LoadedModel(model, chosen.config, card["certificate"], sheet)
  certificate = valid_certificates([model], workdir).get(model.seed)
  return LoadedModel(model, chosen.config, certificate, None)
