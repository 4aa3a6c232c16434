"""Rounds of practice train a model on inputs that its certificate found wrong.

W/certify_1 and so on are the rounds of a workdir of --mode=train or abc, each
with the inputs that it trains on. W/unmended.json has the seeds that are wrong
after the last round; they answer with the parameters from before the first.
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
  """Checks that a training with this config can have rounds of practice.

  Args:
    config: The whole config of the training.
    stage: What the names of its fields begin with in the user's config, like
      "retrain.".

  Raises:
    UsageError: It cannot.
  """
  buckets = tuple(config.data.buckets)
  check(
    not config.practice.rounds or len(buckets) < 2,
    "practice.rounds: trains again on inputs of one bucket, not of"
    f" {stage}data.buckets={buckets}; choose ()",
  )


def run(config: ConfigDict, folder: pathlib.Path) -> None:
  """Certifies the models of a workdir, and trains those that are wrong again.

  A seed that is wrong is trained on inputs on which it is, and then certified
  again, for at most config.practice.rounds rounds; with 0 rounds, nothing is
  certified either.
  """
  if not config.practice.rounds:
    return
  stage_after = lambda rounds=None: workdir.trained_stages(
    config, folder, rounds
  )[-1]
  try:
    certify.check_local(stage_after().models())
  except UsageError as reason:  # the trained models can be evaluated anyway
    runs.print_note(f"no certificate: {reason}")
    return
  path = folder / runs.UNMENDED
  if not path.exists():
    wrong_seeds = _rounds(config, folder, stage_after)
    if not wrong_seeds:
      return
    records.write_text(path, json.dumps(wrong_seeds))
    hosts.barrier("practiced")
    seed_names = ", ".join(map(str, wrong_seeds))
    runs.print_note(
      f"practice has not mended seeds {seed_names}: left as they were"
    )
  certify.certify(stage_after(), folder, len(config.seeds))


def _rounds(
  config: ConfigDict,
  folder: pathlib.Path,
  stage_after: Callable[[int], workdir.Stage],
) -> list[int]:
  """Runs the rounds; returns the seeds that are wrong after their last one.

  `stage_after` returns the Stage that was trained in a number of rounds.
  """
  earlier_inputs, number = {}, 0  # inputs of all earlier rounds, by seed
  while True:
    number += 1
    path = folder / f"certify_{number}" / runs.PRACTICE_INPUTS
    if not path.exists():
      stage = stage_after(number - 1)
      certificates = certify.certify(stage, folder, len(config.seeds))
      inputs = {
        seed: certificate["practice"]
        for seed, certificate in certificates.items()
        if certificate["value"] == 0 and certificate["practice"]["failing"]
      }
      if not inputs or number > config.practice.rounds:
        return [
          int(seed)
          for seed in earlier_inputs
          if certificates[seed]["value"] == 0
        ]
      # Inputs that failed before are trained on again, lest a round only move
      # the error.
      for seed in earlier_inputs.keys() & inputs.keys():
        inputs[seed]["failing"] += earlier_inputs[seed]["failing"]
      records.write_text(path, json.dumps(inputs, indent=1))
    hosts.barrier("certified")
    earlier_inputs |= json.loads(path.read_text())
    stage = stage_after(number - 1)
    practice_run = runs.practice_run(
      config.practice, stage.runs[0], path.parent
    )
    initial = {model.seed: model.params for model in stage.models()}
    seed_names = ", ".join(map(str, practice_run.seeds))
    runs.print_note(
      f"certification, round {number}: training on what fails, seeds"
      f" {seed_names}"
    )
    loop.train(practice_run, [initial[seed] for seed in practice_run.seeds])
