"""This module compiles the programs of the later stages of attention bias
calibration (ABC) while the first stage trains.

A training step of a small model keeps one core of a CPU busy, and compiling
what follows takes about as long as the first stage, so compiling on idle cores
costs no time. JAX's compilation cache is shared by all threads, so the main
thread finds these programs there.
"""

import pathlib
from collections.abc import Iterator

import jax
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax.attention.lines import SiteLines, of_seed
from lengthgen_jax.config import fields
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines import (
  attention_statistics,
  evaluate,
  runs,
  workdir,
)
from lengthgen_jax.training import loop, train_step


def compile_later_stages(
  config: ConfigDict, first_run: loop.Run, folder: pathlib.Path
) -> Iterator[object]:
  """Compiles the programs of calibration, of retraining, and of the tests of
  the vanilla and the retrained model.

  It yields None or a compiled program, of no use to the caller, after each one,
  so that the caller can stop in between. On several devices it compiles
  nothing.

  Args:
    config: the config of the workdir.
    first_run: the first stage, which is being trained.
    folder: the workdir.
  """
  if first_run.mesh.jax_mesh is not None:
    return  # the arrays' shardings are not known before they exist
  first_model = _abstract_model(first_run)
  yield attention_statistics.compile_attention_sums(
    config.calibration, first_model
  )
  retrain_config = fields.retrain_config(
    config, config.seeds, workdir.bias_path(folder)
  )
  retraining = runs.make_run(
    retrain_config,
    folder / "retrain",
    placeholder_lines(retrain_config, first_model.experiment),
  )
  retrain_args = retraining.spec, retraining.seed_R
  yield train_step.init_seeds.lower(*retrain_args).compile()
  yield train_step.compile_train_seeds(*retrain_args, retraining.scaffold)
  retrained = _abstract_model(retraining)
  for spec in evaluate.eval_specs(retrain_config, retrained):
    yield retrained.compile_test(spec)
  for spec in evaluate.eval_specs(
    config, first_model, config.abc.vanilla_longest
  ):
    yield first_model.compile_test(spec)


def _abstract_model(run: loop.Run) -> Model:
  """Returns a model of one seed that has shapes and dtypes for parameters."""
  params = jax.tree.map(
    # without the seed axis
    lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype),
    run.abstract_states.params,
  )
  return Model(run.experiment, of_seed(run.scaffold, 0), params)


def placeholder_lines(
  config: ConfigDict, experiment: Experiment
) -> dict[str, SiteLines]:
  """Returns placeholder lines, zeros with valid=False, by site: as many as
  calibration is likely to find.

  Of the lines, compiled programs depend on their number alone, and on which
  heads are transparent: none is here. Each head has one line for each operand
  at the site that sees the prompt, and one in the self-attention of an
  encoder-decoder. If calibration finds anything else, programs are compiled
  again when they are needed.

  Args:
    config: the config of the second stage.
    experiment: the experiment of the first stage.

  Returns:
    SiteLines [R, N or 1, H, K] by site: R seeds, N layers of the second stage
    (1 if all have the same lines), H heads, K lines of a head.
  """
  model = experiment.model.config
  num_layers = config.model.num_decoder_layers
  layers = num_layers if config.calibration.layers == "each" else 1
  head_shape = len(config.seeds), layers, model.num_heads

  def empty_lines(count: int) -> SiteLines:
    """Returns `count` lines in each head."""
    zeros = np.zeros((*head_shape, count), np.int32)
    num_axes = experiment.task.axes
    return SiteLines(
      row_segment=zeros,
      segment=zeros,
      anchor=zeros,
      matrix=np.zeros((*zeros.shape, num_axes, num_axes), np.int32),
      intercept=np.zeros((*zeros.shape, num_axes), np.int32),
      value=zeros.astype(np.float32),
      valid=zeros.astype(bool),
      transparent=np.zeros(head_shape, bool),
    )

  operands = experiment.task.operands
  is_one_sequence = experiment.kind == "decoder_only"
  counts = {"self": operands if is_one_sequence else 1, "cross": operands}
  return {
    site: empty_lines(counts[site])
    for site in attention_statistics.sites(experiment)
  }
