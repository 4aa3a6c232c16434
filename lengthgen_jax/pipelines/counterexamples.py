"""Rounds of practice: what a certificate finds wrong is trained on.

W/certify_1 and so on are the rounds of a workdir of --mode=train or abc, each
with the inputs that it trains on. W/unmended.json has the seeds that are wrong
after the last one; they answer as they were before the first.
"""

import json
import pathlib

from lengthgen_jax import hosts
from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.pipelines import certify, replay, workdir
from lengthgen_jax.results import records
from lengthgen_jax.training import loop


def check_config(whole, stage: str = "") -> None:
  """UsageError if the config of a stage, whose fields begin so, has no such
  rounds."""
  buckets = tuple(whole.data.buckets)
  check(
    not whole.practice.rounds or len(buckets) < 2,
    "practice.rounds: trains again on inputs of one bucket, not of"
    f" {stage}data.buckets={buckets}; choose ()",
  )


def run(most: int, whole, folder: pathlib.Path) -> None:
  """Certifies what a workdir was trained to, trains the seeds that are wrong on
  inputs on which they are, and certifies them again.

  Args:
    most: rounds; 0: nothing is certified either.
    whole: the workdir's config.
    folder: the workdir.
  """
  if not most:
    return
  last = lambda rounds=None: workdir.trainings(whole, folder, rounds)[-1]
  try:
    certify.check_local(last().models())
  except UsageError as reason:  # what was trained stands all the same
    workdir.report(f"no certificate: {reason}")
    return
  path = folder / replay.UNMENDED
  if not path.exists():
    wrong = _practice(most, whole, folder, last)
    if not wrong:
      return
    records.write_text(path, json.dumps(wrong))
    hosts.meet("practiced")
    seeds = ", ".join(map(str, wrong))
    workdir.report(f"practice has not mended seeds {seeds}: left as they were")
  certify.certify(last(), folder, len(whole.seeds))


def _practice(most: int, whole, folder: pathlib.Path, last) -> list[int]:
  """As run; returns the seeds that are wrong after all rounds they had.

  Args:
    last: rounds -> Stage, what was trained in so many.
  """
  seen = {}  # inputs of the rounds before, by seed
  for number in range(1, most + 2):
    own = folder / f"certify_{number}"
    if not (own / replay.INPUTS).exists():
      found = certify.certify(last(number - 1), folder, len(whole.seeds))
      inputs = {
        seed: one["practice"]
        for seed, one in found.items()
        if one["value"] == 0 and one["practice"]["failing"]
      }
      if not inputs or number > most:
        return [int(seed) for seed in seen if found[seed]["value"] == 0]
      # Lest a round move the error: what failed before fails again.
      for seed in seen.keys() & inputs.keys():
        inputs[seed]["failing"] += seen[seed]["failing"]
      records.write_text(own / replay.INPUTS, json.dumps(inputs, indent=1))
    hosts.meet("certified")
    seen |= json.loads((own / replay.INPUTS).read_text())
    stage = last(number - 1)
    later = replay.round_of(whole.practice, stage.runs[0], own)
    initial = {model.seed: model.params for model in stage.models()}
    workdir.report(
      f"certification, round {number}: training on what fails, seeds"
      f" {', '.join(map(str, later.seeds))}"
    )
    loop.train(later, [initial[seed] for seed in later.seeds])
