"""Rounds of finetuning: a model is trained on inputs on which certification
found it wrong.

W/finetune_1, W/finetune_2 and so on are the rounds of a workdir W of
--mode=train or abc, each with the inputs that it trains on. W/still_wrong.json
lists the seeds that are still wrong after the last round; of these seeds, the
parameters from before the first round are used.
"""

import json
import pathlib
from collections.abc import Callable

from ml_collections import ConfigDict

from lengthgen_jax import hosts
from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.pipelines import certify, runs, workdir
from lengthgen_jax.results import records
from lengthgen_jax.training import loop


def check_config(config: ConfigDict, stage: str = "") -> None:
  """Checks that rounds of finetuning can follow a training.

  Args:
    config: the config of the training.
    stage: the prefix of its fields in the user's config, like "retrain."; the
      error message names a field with it.

  Raises:
    UsageError: the config has rounds of finetuning and more than one bucket.
  """
  buckets = tuple(config.data.buckets)
  check(
    not config.finetune.rounds or len(buckets) < 2,
    "finetune.rounds: trains again on inputs of one bucket, not of"
    f" {stage}data.buckets={buckets}; choose ()",
  )


def certify_and_finetune(config: ConfigDict, folder: pathlib.Path) -> None:
  """Certifies the models of a workdir, and trains again those that are wrong.

  In each of at most config.finetune.rounds rounds, every seed whose certificate
  says wrong is trained on inputs on which it is wrong, and certified again.
  With 0 rounds nothing is done. If the models cannot be certified, a note says
  why.

  Args:
    config: the config of the workdir.
    folder: the workdir; all results are files in it.
  """
  if not config.finetune.rounds:
    return

  def stage_after(rounds: int | None = None) -> workdir.Stage:
    """Returns what was trained in so many rounds, None for all of them."""
    return workdir.trained_stages(config, folder, rounds)[-1]

  try:
    certify.check_certifiable(stage_after().models())
  except UsageError as reason:  # the models can be evaluated all the same
    runs.print_note(f"no certificate: {reason}")
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
      " their parameters from before it are used"
    )
  certify.certify(stage_after(), folder)


def _run_rounds(
  config: ConfigDict,
  folder: pathlib.Path,
  stage_after: Callable[[int], workdir.Stage],
) -> list[int]:
  """Runs the rounds; returns the trained seeds that are wrong after the last.

  `stage_after` returns the Stage that was trained in a number of rounds.
  """
  earlier_inputs = {}  # the inputs on which each seed has been trained so far
  round_number = 0
  while True:
    round_number += 1
    path = folder / f"finetune_{round_number}" / workdir.TRAINING_INPUTS
    if not path.exists():
      stage = stage_after(round_number - 1)
      certificates = certify.certify(stage, folder)
      inputs = {
        seed: certificate["training_inputs"]
        for seed, certificate in certificates.items()
        if certificate["value"] == 0
        and certificate["training_inputs"]["failing"]
      }
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
    earlier_inputs |= json.loads(path.read_text())
    stage = stage_after(round_number - 1)
    finetuning_run = workdir.finetuning_run(
      config.finetune, stage.runs[0], path.parent
    )
    initial = {model.seed: model.params for model in stage.models()}
    seed_names = ", ".join(map(str, finetuning_run.seeds))
    runs.print_note(
      f"certification, round {round_number}: training on inputs that fail,"
      f" seeds {seed_names}"
    )
    loop.train(finetuning_run, [initial[seed] for seed in finetuning_run.seeds])
