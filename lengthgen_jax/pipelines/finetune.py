"""This module finetunes models in rounds: each one trains the seeds that
certification found wrong, on inputs on which they are wrong or nearly so.

Such a round is not one of training, which is a gradient step for each task.
W/finetune_1, W/finetune_2 and so on are the rounds in a workdir W of
--mode=train or abc, each with the inputs that it trains on. W/still_wrong.json
lists the seeds that are still wrong after the last round; of these seeds, the
parameters from before the first round are used.
"""

import json
import pathlib
from collections.abc import Callable

from ml_collections import ConfigDict

from lengthgen_jax import hosts
from lengthgen_jax.errors import check
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import certify, runs, workdir
from lengthgen_jax.proofs.search import Search
from lengthgen_jax.results import records
from lengthgen_jax.tasks import dataset
from lengthgen_jax.training import loop


def check_config(config: ConfigDict, prefix: str = "") -> None:
  """Checks that rounds of finetuning can follow a training.

  Args:
    config: the config of the training, which `build` accepts.
    prefix: what the names of its fields begin with in the user's config, like
      "retrain.", for the error message.

  Raises:
    UsageError: the config has rounds of finetuning and more than one bucket,
      a fixed width for longer operands than in training, or the number of a
      step as eval.checkpoint; or finetune.share leaves none of the main task's
      examples in a batch.
  """
  checkpoint = config.eval.checkpoint
  check(
    not config.finetune.rounds or checkpoint in ("last", "best"),
    f"eval.checkpoint={checkpoint!r}: rounds of finetuning count steps of their"
    " own; choose last or best, or finetune.rounds=0",
  )
  batch_size, share = config.train.batch_size, config.finetune.share
  count = batch_size  # of the main task's examples
  if config.mixing.kind == "weighted":
    weights = config.mixing.weights or (1.0,) * (1 + len(config.hints))
    count = dataset.split(batch_size, weights)[0]
  check(
    not config.finetune.rounds or int(share * count),
    f"finetune.share={share}: no example of the main task's {count} in"
    f" {prefix}train.batch_size={batch_size}; choose a larger share",
  )
  data = config.data
  check(
    not config.finetune.rounds
    or data.width != "fixed"
    or data.fixed_width - 1 <= data.train_length,
    f"finetune.rounds: with {prefix}data.width='fixed' inputs as short as in"
    f" training are not found; choose 0, or {prefix}data.fixed_width="
    f"{data.train_length + 1}",
  )
  buckets = tuple(data.buckets)
  check(
    not config.finetune.rounds or len(buckets) < 2,
    "finetune.rounds: finetuning needs inputs of one bucket, not"
    f" {prefix}data.buckets={buckets}; choose ()",
  )


def certify_and_finetune(config: ConfigDict, folder: pathlib.Path) -> None:
  """Certifies the models of a workdir, and trains again those that are wrong.

  In each of at most config.finetune.rounds rounds, every seed whose certificate
  says "wrong" is trained and certified again, if inputs no longer than in
  training show that it is. Of the main task's examples a share,
  config.finetune.share, are inputs on which it is wrong, or right by a thin
  margin; all others are drawn as in training. Seeds are left out of which a row
  cannot tell two inputs apart that it must answer differently. With 0 rounds
  nothing is done, and nothing certified. If the models cannot be certified, a
  note says why, and they stay as they are.

  Args:
    config: the config of the workdir.
    folder: the workdir, to which all results are written.

  Raises:
    UsageError: as in `certify.certify`, but for models that cannot be
      certified.
    Interrupted: SIGTERM or SIGINT came and the run stopped; the same command,
      given again, resumes it.
  """
  if not config.finetune.rounds:
    return

  def stage_after(rounds: int | None = None) -> workdir.Stage:
    """Returns the last stage with so many rounds of finetuning; None: all."""
    return workdir.trained_stages(config, folder, rounds)[-1]

  stage = stage_after()
  reasons = [certify.refusal(stage.config, x) for x in stage.trained_models]
  if all(reasons):
    runs.print_note(f"no certificate: {reasons[0]}")  # but tests
    return
  path = folder / workdir.STILL_WRONG
  if not path.exists():
    wrong_seeds = _run_rounds(config, folder, stage_after)
    if not wrong_seeds:
      return
    records.write_text(path, json.dumps(wrong_seeds))
    hosts.barrier("finetuned")
    seed_names = ", ".join(map(str, wrong_seeds))
    runs.print_note(
      f"seeds {seed_names} are still wrong after all rounds of finetuning:"
      " their parameters from before the first round are used"
    )
  certify.certify(stage_after(), folder)


def _run_rounds(
  config: ConfigDict,
  folder: pathlib.Path,
  stage_after: Callable[[int], workdir.Stage],
) -> list[int]:
  """Runs the rounds; returns the finetuned seeds that are wrong after the last.

  Args:
    config: the config of the workdir.
    folder: the workdir.
    stage_after: function of a number of rounds that returns the last Stage
      after these rounds.
  """
  earlier_inputs = {}  # {str(seed): the inputs of its last round}
  round_number = 0
  while True:
    round_number += 1
    path = folder / f"finetune_{round_number}" / workdir.TRAINING_INPUTS
    stage = stage_after(round_number - 1)
    if not path.exists():
      certificates = certify.certify(stage, folder)
      wrong = [
        str(model.seed)
        for model in stage.models
        if certificates[str(model.seed)]["value"] == 0
        and not _is_hopeless(stage.config, model)
      ]
      inputs = {
        seed: certificates[seed]["training_inputs"]
        for seed in wrong
        if certificates[seed]["training_inputs"]["failing"]
      }
      others = [seed for seed in wrong if seed not in inputs]
      if others:
        runs.print_note(
          f"seeds {', '.join(others)} are wrong, but no input as short as in"
          " training is known on which they are: they are finetuned no more"
        )
      if not inputs or round_number > config.finetune.rounds:
        return [
          int(seed)
          for seed in earlier_inputs
          if certificates[seed]["value"] == 0
        ]
      # Inputs that failed in earlier rounds are trained on too; otherwise the
      # model might become wrong on them again.
      for seed in earlier_inputs.keys() & inputs.keys():
        inputs[seed]["failing"] += earlier_inputs[seed]["failing"]
      records.write_text(path, json.dumps(inputs, indent=1))
    hosts.barrier("certified")
    earlier_inputs |= json.loads(path.read_text(encoding="utf-8"))
    run = workdir.finetuning_run(config.finetune, stage.runs[0], path.parent)
    initial = {model.seed: model.params for model in stage.models}
    seed_names = ", ".join(map(str, run.seeds))
    runs.print_note(
      f"certification, round {round_number}: training on inputs that fail,"
      f" seeds {seed_names}"
    )
    loop.train(run, [initial[seed] for seed in run.seeds])


# Models that no training can mend.


def _is_hopeless(config: ConfigDict, model: Model) -> bool:
  """Returns whether some row of a wrong model cannot tell two inputs apart that
  it must answer differently; a note says what the row does not see."""
  found = Search(model, *certify.exported(config, model)).lookalikes()
  if found is None:
    return False
  (*seen, target), texts = found
  task = model.experiment.task
  unseen = unseen_own(task.operands, target, seen)
  reason = f"{unseen} is on no line"
  if not unseen:
    reason = f"it depends on {', '.join(map(name_of, seen)) or 'nothing'} alone"
  advice = "add a line to bias.file"
  if config.bias.kind == "window":
    advice = "raise bias.window"
  elif config.method.startswith("abc"):
    in_self = "_self" * (model.experiment.kind == "decoder_only")
    advice = f"lower calibration.kappa{in_self}"
    if not unseen and not in_self:
      advice += " or calibration.kappa_self"
  runs.print_note(
    f"seed {model.seed} is not finetuned: the row that must say"
    f" {name_of(target)} cannot tell {' and '.join(texts)} apart, because"
    f" {reason}: {advice}"
  )
  return True


def name_of(variable: tuple | int) -> str:
  """Returns a variable of the checker in words, like "a3" for the digit of a in
  column 3; "y" is the output."""
  if isinstance(variable, int):
    return "the end token"
  kind, *place = variable
  if kind == "out":
    return f"y{','.join(map(str, place))}"
  operand, column = place
  return f"{'abs'[operand]}{column}"


def unseen_own(operands: int, target: tuple | int, seen: list) -> str:
  """Returns the digit of its own column that a row does not see, in words; ""
  if it sees those of all operands."""
  if isinstance(target, int):
    return ""
  for operand in range(operands):
    columns = {x[2] for x in seen if x[:2] == ("in", operand)}
    if target[-1] not in columns and (operand == 0 or not columns):
      name = "item" if operands == 1 else f"digit of {'abs'[operand]}"
      return f"the row's own {name}"
  return ""
