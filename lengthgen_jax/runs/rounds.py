"""Rounds of practice: what a certificate finds wrong is trained on.

W/certify_1 and so on are the rounds of a workdir of --mode=train or abc, each
with the inputs that it trains on.
"""

import json
import pathlib

from lengthgen_jax import hosts
from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.results import records
from lengthgen_jax.runs import certify, practice, workdir
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
  asked = len(whole.seeds)
  last = lambda rounds=None: workdir.trainings(whole, folder, rounds)[-1]
  try:
    certify.check_local(last().models())
  except UsageError as reason:  # what was trained stands all the same
    workdir.report(f"no certificate: {reason}")
    return
  seen = {}  # inputs of the rounds before, by seed
  for number in range(1, most + 1):
    own = folder / f"certify_{number}"
    if not (own / practice.INPUTS).exists():
      inputs = {
        seed: found["practice"]
        for seed, found in certify.certify(last(), folder, asked).items()
        if found["value"] == 0 and found["practice"]["failing"]
      }
      if not inputs:
        return
      # Lest a round move the error: what failed before fails again.
      for seed in seen.keys() & inputs.keys():
        inputs[seed]["failing"] += seen[seed]["failing"]
      records.write_text(own / practice.INPUTS, json.dumps(inputs, indent=1))
    hosts.meet("certified")
    seen |= json.loads((own / practice.INPUTS).read_text())
    stage = last(number - 1)
    later = practice.round_of(whole.practice, stage.runs[0], own)
    initial = {model.seed: model.params for model in stage.models()}
    workdir.report(
      f"certification, round {number}: training on what fails, seeds"
      f" {', '.join(map(str, later.seeds))}"
    )
    loop.train(later, [initial[seed] for seed in later.seeds])
  certify.certify(last(), folder, asked)
