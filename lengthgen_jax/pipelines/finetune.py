"""Rounds of finetuning: each one trains the seeds that certification did not
prove, on inputs on which they are wrong or nearly so.

W/finetune_1, W/finetune_2 and so on are the rounds in a workdir W of
--mode=train or abc, each with the inputs that it trains on.
"""

import itertools
import json
import pathlib

from ml_collections import ConfigDict

from lengthgen_jax import hosts
from lengthgen_jax.errors import check
from lengthgen_jax.pipelines import certify, runs, workdir
from lengthgen_jax.results import records
from lengthgen_jax.training import loop


def check_config(config: ConfigDict) -> None:
  """Checks that rounds of finetuning, if there are any, can follow the training
  of a config, which `build` accepts."""
  if not config.finetune.rounds:
    return
  checkpoint, data = config.eval.checkpoint, config.data
  check(
    checkpoint in ("last", "best"),
    f"eval.checkpoint={checkpoint!r}: rounds of finetuning count steps of their"
    " own; choose last or best, or finetune.rounds=0",
  )
  check(
    data.width != "fixed" or data.fixed_width - 1 <= data.train_length,
    "finetune.rounds: with data.width='fixed' inputs as short as in training"
    f" are not found; choose 0, or data.fixed_width={data.train_length + 1}",
  )
  check(
    len(data.buckets) < 2,
    "finetune.rounds: finetuning needs inputs of one bucket, not"
    f" data.buckets={tuple(data.buckets)}; choose ()",
  )


def certify_and_finetune(config: ConfigDict, folder: pathlib.Path) -> None:
  """Certifies the models of a workdir, and trains again those not proved: in
  each of at most config.finetune.rounds rounds every seed of which inputs no
  longer than in training show that it is wrong, or right by a thin margin.
  With 0 rounds nothing is certified either."""
  is_abc = workdir.is_abc(folder)
  if not config.finetune.rounds:
    if is_abc:
      hosts.print_note("finetune.rounds=0: nothing is pruned or certified")
    return
  name = "retrain" if is_abc else "train"
  stage = workdir.load_trained(config, folder, name)
  failed = {}  # {str(seed): inputs on which it failed in earlier rounds}
  for number in itertools.count(1):
    path = folder / f"finetune_{number}" / runs.TRAINING_INPUTS
    if not path.exists():
      inputs = _inputs(stage, certify.certify(stage, folder))
      if not inputs or number > config.finetune.rounds:
        return
      # Otherwise the model might become wrong on these again.
      for seed in inputs:
        inputs[seed]["failing"] += failed.get(seed, [])
      records.write_text(path, json.dumps(inputs, indent=1))
    hosts.barrier("certified")
    run = runs.finetuning_run(config.finetune, stage.run, path.parent)
    inputs = json.loads(path.read_text(encoding="utf-8"))
    failed |= {seed: x["failing"] for seed, x in inputs.items()}
    hosts.print_note(
      f"certification, round {number}: training on inputs that fail or nearly"
      f" do, seeds {', '.join(inputs)}"
    )
    params = {model.seed: model.params for model in stage.models}
    loop.train(run, [params[seed] for seed in run.seeds])
    stage = workdir.after_round(stage, run)


def _inputs(
  stage: workdir.Stage, certificates: dict[str, dict]
) -> dict[str, dict]:
  """Returns the inputs to train on of the seeds that are not proved, by seed:
  of those that are undecided, inputs that are right by a thin margin."""
  inputs = {}
  for model in stage.models:
    certificate = certificates[str(model.seed)]
    texts = certificate["training_inputs"]
    is_wrong = certificate["outcome"] == 0
    if texts["failing"] or (texts["thin"] and not is_wrong):
      inputs[str(model.seed)] = texts
    elif is_wrong:
      hosts.print_note(
        f"seed {model.seed} is wrong, but no input as short as in training is"
        " known on which it is: it is finetuned no more"
      )
  return inputs
