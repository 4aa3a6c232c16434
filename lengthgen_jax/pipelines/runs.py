"""The runs that a config describes, and the models that they trained."""

import dataclasses
import json
import pathlib

import jax
from ml_collections import ConfigDict

from lengthgen_jax import sections
from lengthgen_jax.config import build
from lengthgen_jax.errors import UsageError
from lengthgen_jax.evaluation import trained
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.training import loop, mesh

TRAINING_INPUTS = "inputs.json"  # of a round of finetuning, by seed


def make_run(config: ConfigDict, folder: pathlib.Path) -> loop.Run:
  """Returns the run that a config describes, without a look at its folder.

  Args:
    config: a whole config.
    folder: where the checkpoints and logs of the run are or will be."""
  if "float64" in (config.model.dtype, config.retrain.model.get("dtype")):
    jax.config.update("jax_enable_x64", True)  # for all stages of the process
  experiment = build.build(config)
  scaffold = build.make_scaffold(config, experiment)
  _check_scaffold(config, experiment, scaffold)
  return loop.Run(
    experiment=experiment,
    train=sections.Train(**config.train),
    seeds=tuple(config.seeds),
    scaffold=scaffold,
    folder=folder,
    checkpoint=sections.Checkpoint(**config.checkpoint),
    sparse=experiment.trains_sparse(scaffold),
    mesh=mesh.make(config.mesh, config.seeds, config.train.batch_size),
  )


def _check_scaffold(
  config: ConfigDict, experiment: Experiment, scaffold: dict
) -> None:
  """Raises UsageError if a scaffold shows rows later outputs without
  bias.allow_leak, or is too small for training or a test of config.eval."""
  if "self" in scaffold and not experiment.bias.allow_leak:
    leak = scaffold["self"].first_leak()
    if leak is not None:
      seed, layer, head = leak
      raise UsageError(
        f"bias leaks the future: site self, index of the seed {seed}, layer"
        f" {layer}, head {head}; repair it, or ask for it by"
        " --config.bias.allow_leak=true"
      )
  for alone, width in build.input_widths(config, experiment):
    alone.check_scaffold(width, scaffold)


def finetuning_run(
  section: ConfigDict, run: loop.Run, folder: pathlib.Path
) -> loop.Run:
  """Returns the run of a round of finetuning, of the seeds in its file
  TRAINING_INPUTS, from which a share of the main task's examples is drawn.

  Args:
    section: config.finetune.
    run: the training before the first round.
    folder: of the round, finetune_N; its file TRAINING_INPUTS is
      {str(seed): {"failing": texts, "thin": texts}}.
  """
  text = (folder / TRAINING_INPUTS).read_text(encoding="utf-8")
  inputs = {int(seed): texts for seed, texts in json.loads(text).items()}
  seeds, counterexamples = tuple(inputs), []
  for seed, texts in inputs.items():
    failing, thin = texts["failing"], texts["thin"]
    # Those that fail are repeated, so that they are about as many as those with
    # thin margins.
    repeats = max(len(thin) // max(len(failing), 1), 1)
    counterexamples += [(seed, text) for text in failing * repeats + thin]
  data, *hints = run.experiment.data
  data = dataclasses.replace(
    data, counterexamples=tuple(counterexamples), share=section.share
  )
  number = int(folder.name.partition("_")[2])
  learning_rate = section.learning_rate * section.rate_decay ** (number - 1)
  indices = [run.seeds.index(seed) for seed in seeds]
  return dataclasses.replace(
    run,
    experiment=dataclasses.replace(run.experiment, data=(data, *hints)),
    seeds=seeds,
    scaffold=jax.tree.map(
      lambda x: x[indices] if len(x) > 1 else x, run.scaffold
    ),
    folder=folder,
    train=dataclasses.replace(
      run.train,
      steps=section.steps,
      learning_rate=learning_rate,
      adam_learning_rate=run.train.adam_learning_rate
      * (learning_rate / run.train.learning_rate),
      warmup_steps=min(20, section.steps),
      target_exact_match=2.0,  # never reached, so that all steps are taken
    ),
    mesh=run.mesh
    if len(seeds) == len(run.seeds)
    else mesh.make((), seeds, run.train.batch_size),
  )


def load(run: loop.Run, checkpoint: str) -> list[trained.Model]:
  """Returns the models of a trained run, one of each seed; the checkpoint is
  "last", "best" or the number of a step."""
  return trained.models(run, loop.load(run, checkpoint), checkpoint)
