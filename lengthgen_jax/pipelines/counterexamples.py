"""Rounds of practice train a model on inputs that its certificate found wrong.

W/certify_1 and so on are the rounds of a workdir of --mode=train or abc, each
with the inputs that it trains on. W/unmended.json has the seeds that are wrong
after the last round; they answer with the parameters from before the first.
"""

import json
import pathlib
from collections.abc import Callable

from lengthgen_jax import hosts
from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.pipelines import certify, runs, workdir
from lengthgen_jax.results import records
from lengthgen_jax.training import loop


def check_config(full_config, stage: str = "") -> None:
  """Checks that a training with this config can have rounds of practice.

  Args:
    full_config: The whole config of the training.
    stage: What the names of its fields begin with in the user's config, like
      "retrain.".

  Raises:
    UsageError: It cannot.
  """
  buckets = tuple(full_config.data.buckets)
  check(
    not full_config.practice.rounds or len(buckets) < 2,
    "practice.rounds: trains again on inputs of one bucket, not of"
    f" {stage}data.buckets={buckets}; choose ()",
  )


def run(max_rounds: int, full_config, folder: pathlib.Path) -> None:
  """Certifies the models of a workdir, and trains those that are wrong again.

  A seed that is wrong is trained on inputs on which it is, and then certified
  again.

  Args:
    max_rounds: The greatest number of rounds; with 0, nothing is certified
      either.
    full_config: The whole config of the workdir.
    folder: The workdir.
  """
  if not max_rounds:
    return
  stage_after = lambda rounds=None: workdir.trained_stages(
    full_config, folder, rounds
  )[-1]
  try:
    certify.check_local(stage_after().models())
  except UsageError as reason:  # the trained models can be evaluated anyway
    runs.print_note(f"no certificate: {reason}")
    return
  path = folder / runs.UNMENDED
  if not path.exists():
    wrong_seeds = _practice(max_rounds, full_config, folder, stage_after)
    if not wrong_seeds:
      return
    records.write_text(path, json.dumps(wrong_seeds))
    hosts.barrier("practiced")
    seed_names = ", ".join(map(str, wrong_seeds))
    runs.print_note(
      f"practice has not mended seeds {seed_names}: left as they were"
    )
  certify.certify(stage_after(), folder, len(full_config.seeds))


def _practice(
  max_rounds: int,
  full_config,
  folder: pathlib.Path,
  stage_after: Callable[..., workdir.Stage],
) -> list[int]:
  """Runs the rounds; returns the seeds that are wrong after their last one.

  Args:
    max_rounds: The greatest number of rounds.
    full_config: The whole config of the workdir.
    folder: The workdir.
    stage_after: A function from a number of rounds to the Stage that was
      trained in them.
  """
  earlier_inputs = {}  # inputs of all earlier rounds, by seed
  for number in range(1, max_rounds + 2):
    round_folder = folder / f"certify_{number}"
    if not (round_folder / runs.INPUTS).exists():
      certificates = certify.certify(
        stage_after(number - 1), folder, len(full_config.seeds)
      )
      inputs = {
        seed: certificate["practice"]
        for seed, certificate in certificates.items()
        if certificate["value"] == 0 and certificate["practice"]["failing"]
      }
      if not inputs or number > max_rounds:
        return [
          int(seed)
          for seed in earlier_inputs
          if certificates[seed]["value"] == 0
        ]
      # Inputs that failed before are trained on again, lest a round only move
      # the error.
      for seed in earlier_inputs.keys() & inputs.keys():
        inputs[seed]["failing"] += earlier_inputs[seed]["failing"]
      records.write_text(
        round_folder / runs.INPUTS, json.dumps(inputs, indent=1)
      )
    hosts.barrier("certified")
    earlier_inputs |= json.loads((round_folder / runs.INPUTS).read_text())
    stage = stage_after(number - 1)
    round_run = runs.practice_run(
      full_config.practice, stage.runs[0], round_folder
    )
    initial = {model.seed: model.params for model in stage.models()}
    runs.print_note(
      f"certification, round {number}: training on what fails, seeds"
      f" {', '.join(map(str, round_run.seeds))}"
    )
    loop.train(round_run, [initial[seed] for seed in round_run.seeds])
