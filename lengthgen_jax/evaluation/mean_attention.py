"""The mean attention of a trained model under each condition, a width and a
length of operands."""

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax import rng
from lengthgen_jax.attention.calibration import MeanAttention
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models.transformer import blocks
from lengthgen_jax.tasks import dataset
from lengthgen_jax.tasks.dataset import Width
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.training.mesh import Mesh

BATCH_SIZE = 250  # samples whose attention is computed at once


class Condition(NamedTuple):
  """The width and length of the samples whose attention is averaged.

  Attributes:
    width: the width that operands are padded to; a pair for grids.
    length: the length of every operand, in the units of the task (bits for
      parity); a pair for grids. None draws lengths as in training."""

  width: Any
  length: Any


def conditions(
  lengths: Sequence[int], experiment: Experiment
) -> list[Condition]:
  """Returns the conditions for which attention is collected.

  There is one for each length, at its natural width or at the fixed one. Of a
  grid, the training sizes whose sides are among these lengths are taken.
  Without lengths there is one for every training width, with lengths drawn as
  in training; a ragged task then has no conditions."""
  task, widths = experiment.task, experiment.data[0].widths
  lengths = [task.units(length) for length in lengths]
  if task.axes > 1:  # the operands of a grid fill their width
    return [
      Condition(width, width)
      for width in widths
      if not lengths or set(np.atleast_1d(width)) <= set(lengths)
    ]
  if not lengths:
    return [Condition(width, None) for width in widths]
  fixed = experiment.fixed_width
  return [
    Condition(fixed or task.natural_width(length), length) for length in lengths
  ]


def sites(experiment: Experiment) -> tuple[str, ...]:
  """Returns the attention sites of the decoder: "self", and "cross" in
  encoder-decoder models."""
  return tuple(site for site in experiment.site_segments if site != "encoder")


def collect(
  section: ConfigDict,
  model: Model,
  sampled_conditions: Sequence[Condition],
) -> tuple[dict[str, list[MeanAttention]], list[float]]:
  """Collects the mean attention of a model under some conditions.

  All batches are padded to the widest condition, so that those of BATCH_SIZE
  samples share one program.

  Args:
    section: config.calibration, which says what is collected (weights or
      scores), from how many samples of each condition, and which rows count;
      its lengths are not used.
    model: a trained model.
    sampled_conditions: the conditions, at least one.

  Returns:
    By attention site, the mean attention under each condition; and for each
    condition, the percentage of samples that count."""
  experiment, task = model.experiment, model.experiment.task
  bound = dataset.widest([condition.width for condition in sampled_conditions])
  means: dict[str, list[MeanAttention]] = {x: [] for x in sites(experiment)}
  percentages, num_samples = [], section.samples
  for condition in sampled_conditions:
    draw = partial(sample_batch, experiment, model.seed, condition, bound)
    batches = [
      draw(start, min(BATCH_SIZE, num_samples - start))
      for start in range(0, num_samples, BATCH_SIZE)
    ]
    args = model.mesh, experiment, section.quantity, model.params
    batch_sums = [_sums(*args, model.scaffold, batch) for batch in batches]
    totals = reduce(partial(jax.tree.map, np.add), jax.device_get(batch_sums))
    num_counted = float(totals["counted"])
    percentages.append(100 * num_counted / num_samples)
    # All samples of a condition have the same coordinates.
    first_example = lambda x: np.asarray(x[:1] if x.ndim > 1 else x)
    example = jax.tree.map(first_example, batches[0])
    used_T = example.rows.segment[0] == task.target_segment
    if section.rows == "length":
      length = condition.length or task.units(experiment.train_length)
      # In a grid, only an end token is beyond the length of the last operand.
      used_T &= example.rows.left[0, :, 0] < np.ravel(length)[-1]
    for site in means:
      values = totals[site] / max(num_counted, 1.0)
      keys = example.keys if site == "self" else example.source_keys
      means[site].append(MeanAttention(values, used_T, example.rows, keys))
  return means, percentages


def sample_batch(
  experiment: Experiment,
  seed: int,
  condition: Condition,
  bound: Width,
  start: int,
  count: int,
) -> Batch:
  """Returns samples `start` to `start + count` of a condition, a function of
  the seed of a model, padded to the width `bound`.

  If the condition's length is None, they are training examples padded to the
  widest training width, and depend on how samples are split into batches too.
  """
  width, length = condition
  # A width or length is folded into the key as one number; the pair (n, m) of a
  # grid is 1000 n + m.
  fold = lambda key, x: jax.random.fold_in(
    key, int(np.polyval(np.atleast_1d(x), 1000))
  )
  key = fold(rng.stream(seed, "calibration"), width)
  if length is None:
    width_index = experiment.data[0].widths.index(width)
    key, part = jax.random.fold_in(key, start), dataset.Part(0, count)
    return experiment.sample(key, experiment.task.name, part, width_index)
  return experiment.random_batch(
    fold(key, length),
    jnp.arange(start, start + count),
    np.asarray(length, np.int32),
    np.asarray(width, np.int32),
    bound,
  )


@partial(jax.jit, static_argnums=(0, 1, 2))
def _sums(
  mesh: Mesh,
  experiment: Experiment,
  quantity: str,
  params: dict,
  scaffold: dict,
  batch: Batch,
) -> dict[str, jax.Array]:
  """Returns attention [N, H, T, S] ("weights", after the softmax, or "scores",
  before it) summed over the samples that count, by site, and the number of
  these samples as "counted"."""
  batch = mesh.shard_batch(batch)
  logits, acts = experiment.apply(params, scaffold, batch, experiment.task.name)
  correct_BxT = (logits.argmax(-1) == batch.target) | (batch.weight == 0)
  counted_B = jnp.all(correct_BxT, axis=1).astype(jnp.float32)
  sums = {"counted": counted_B.sum()}
  for site in sites(experiment):
    values = jnp.stack(
      [block[f"{site}_attention"][quantity] for block in blocks(acts)]
    )
    sums[site] = jnp.einsum(
      "nbhts,b->nhts", values, counted_B, precision="highest"
    )
  return mesh.replicate(sums)
