"""Statistics of a trained model's attention, from which lines are calibrated.

The mean attention is collected under conditions of width and length, and every
candidate line is judged by it.
"""

import copy
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import rng
from lengthgen_jax.attention import candidates, lines
from lengthgen_jax.attention.calibration import (
  Condition,
  Rule,
  Verdict,
  calibrate,
)
from lengthgen_jax.attention.candidates import Candidates
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import dataset, mixing
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.tasks.task import Task
from lengthgen_jax.training.mesh import Mesh

PASS = 250  # samples in a batch


def conditions(section, experiment: Experiment) -> list[tuple]:
  """Returns the pairs (width, length in units) to collect attention at.

  On a grid both are pairs of numbers. A length of None means that examples are
  drawn as in training.

  Args:
    section: The section config.calibration.
    experiment: The experiment of the interpolated models.
  """
  lengths = [experiment.task.units(length) for length in section.lengths]
  if experiment.task.ragged:
    return [(length, length) for length in lengths]
  widths = experiment.data[0].widths
  if experiment.task.axes > 1:  # a grid's digits fill it
    return [
      (width, width)
      for width in widths
      if not lengths or set(width) <= set(lengths)
    ]
  return [(width, length) for width in widths for length in lengths or [None]]


def collect(
  section,
  model: Model,
  width: int | tuple[int, ...],
  length: int | tuple[int, ...] | None,
  unsolved: bool = False,
) -> tuple[dict[str, Condition], dict[str, np.ndarray], float]:
  """Collects the mean attention of an interpolated model under one condition.

  Args:
    section: The section config.calibration.
    model: An interpolated model.
    width: The width of the operands.
    length: The units of every operand; None draws training examples.
    unsolved: Whether samples that are not solved count too.

  Returns:
    Three values, of the samples that count: a Condition for each attention
    site; the standard deviation of the attention [N, H, T, S] for each site;
    and the percentage of samples that count.
  """
  experiment = model.experiment
  task, draw = experiment.task, partial(samples, experiment, model.seed)

  def sums(start: int) -> dict:
    count = min(PASS, section.samples - start)
    batch = draw(width, length, start, count)
    args = model.params, model.scaffold, batch, unsolved
    return _sums(model.mesh, experiment, section.quantity, *args)

  starts = range(0, section.samples, PASS)
  # The sums are added by numpy: there are arrays of many shapes, and to compile
  # an addition for each would take longer.
  parts = jax.device_get(list(map(sums, starts)))
  total = reduce(partial(jax.tree.map, np.add), parts)
  solved = float(total["solved"])
  scale = experiment.model.config.head_dim**0.5
  scale = 1.0 if section.scaled or section.quantity == "weights" else scale
  # All samples of a condition have the same coordinates.
  first_example = lambda x: np.asarray(x[:1] if x.ndim > 1 else x)
  example = jax.tree.map(
    first_example, draw(width, length, 0, min(PASS, section.samples))
  )
  used_T = example.rows.segment[0] == task.target_segment
  if section.rows == "length":
    limit = length or task.units(experiment.train_length)
    if task.axes > 1:  # rows of the grid, of one operand's digits
      limit = limit[task.segment_axes.index(0)]
    used_T &= example.rows.left[0, :, 0] < limit
  means, deviations = {}, {}
  for site in sites(experiment):
    mean = total[site] / max(solved, 1.0)
    variance = total[site + "_square"] / max(solved, 1.0) - mean**2
    keys = example.keys if site == "self" else example.source_keys
    means[site] = Condition(scale * mean, used_T, example.rows, keys)
    deviations[site] = scale * np.sqrt(np.maximum(variance, 0.0))
  return means, deviations, 100 * solved / section.samples


def sites(experiment: Experiment) -> tuple[str, ...]:
  """Returns the attention sites of the decoder's rows."""
  return tuple(s for s in experiment.site_segments if s != "encoder")


def samples(
  experiment: Experiment,
  seed: int,
  width: int | tuple[int, ...],
  length: int | tuple[int, ...] | None,
  start: int,
  count: int,
) -> Batch:
  """Returns samples `start` to `start + count` of a condition as a batch.

  Args:
    experiment: The experiment of the model.
    seed: The seed of the model, from which samples are drawn.
    width: The width of the operands.
    length: The units of every operand; None draws training examples.
    start: The index of the first sample.
    count: How many samples there are.
  """
  # A width or length is folded into the key as one number, which on a grid has
  # the digits of both.
  fold = lambda key, x: jax.random.fold_in(key, int(np.polyval(x, 1000)))
  key = fold(rng.stream(seed, "calibration"), np.atleast_1d(width))
  training_set = experiment.data[0]
  if length is None:
    width_index = training_set.widths.index(width)
    key = jax.random.fold_in(key, start)
    return experiment.sample(
      key, experiment.task.name, mixing.Part(0, count), width_index
    )
  return dataset.test_batch(
    experiment.task,
    experiment.kind,
    next(iter(experiment.task.test_sets)),
    fold(key, np.atleast_1d(length)),
    jnp.arange(start, start + count),
    np.asarray(length, np.int32),
    np.asarray(width, np.int32),
    width,
    (),
  )


@partial(jax.jit, static_argnums=(0, 1, 2))
def _sums(
  mesh: Mesh,
  experiment: Experiment,
  quantity: str,
  params: dict,
  scaffold: dict,
  batch: Batch,
  unsolved: bool,
) -> dict[str, jax.Array]:
  """Sums attention and its square over the samples that count, for each site.

  `quantity` is "weights" (after the softmax) or "scores" (before it).
  """
  batch = mesh.shard_batch(batch)
  logits, acts = experiment.apply(params, scaffold, batch, experiment.task.name)
  correct_BxT = (logits.argmax(-1) == batch.target) | (batch.weight == 0)
  counted_B = (jnp.all(correct_BxT, axis=1) | unsolved).astype(jnp.float32)
  sums = {"solved": counted_B.sum()}
  for site in sites(experiment):
    blocks = acts["decoder"]["blocks"]
    values = jnp.stack([block[site][quantity] for block in blocks])
    sum_over_batch = partial(jnp.einsum, "nbhts,b->nhts", precision="highest")
    sums[site] = sum_over_batch(values, counted_B)
    sums[site + "_square"] = sum_over_batch(values**2, counted_B)
  return mesh.replicate(sums)


def judge(
  section,
  task: Task,
  conditions: list[Condition],
  site: str,
  threshold: float | None = None,
) -> tuple[Candidates, Verdict]:
  """Returns the candidate lines of one attention site and the Verdict on them.

  Args:
    section: The section config.calibration.
    task: The main task.
    conditions: The mean attention of the site under every condition.
    site: "self" or "cross".
    threshold: What takes the place of the section's κ; None keeps κ.
  """
  causal = site == "self"
  largest = max(conditions, key=lambda condition: condition.attention.shape[3])
  prompt_segments = set(range(len(task.segments)))
  tested_lines = candidates.candidates(
    largest.rows,
    largest.keys,
    task.target_segment,
    section.self_directions if causal else section.directions,
    absolute=section.lines == "absolute",
    ends=prompt_segments if causal else prompt_segments | {lines.WHOLE},
    end_steps=section.directions,
  )
  kappa = section.kappa_self if causal else section.kappa
  rule = Rule(
    line=section.line,
    rule=section.rule,
    threshold=kappa if threshold is None else threshold,
    statistics=section.statistics,
    maximum=section.maximum,
    min_cells=section.min_cells,
  )
  run_calibrate = jax.jit(calibrate, static_argnames=("causal", "rule"))
  verdict = jax.device_get(
    run_calibrate(conditions, tested_lines, causal=causal, rule=rule)
  )
  if section.reach:
    near_lines = candidates.near(
      tested_lines, largest.keys, task, section.reach
    )
    layer_index = np.minimum(np.arange(len(verdict.keep)), 1)
    verdict = verdict._replace(
      keep=verdict.keep & near_lines[layer_index, None]
    )
    if task.axes > 1:
      verdict = candidates.first(verdict, tested_lines, task)
  return tested_lines, verdict


def strongest(
  section, model: Model, samples: int
) -> dict[str, tuple[Candidates, Verdict]]:
  """Judges all lines of a model's attention, whether or not samples are solved.

  Every line that is long enough may be kept, whatever its score is. A model
  that was trained at one width is also shown two greater ones, because one
  width cannot tell the two ends of an operand apart.

  Args:
    section: The section config.calibration.
    model: A trained model.
    samples: How many samples there are of each condition.

  Returns:
    The candidates and the verdict on them, for each attention site.
  """
  section = copy.deepcopy(section)
  section.samples = samples
  experiment = model.experiment
  pairs = conditions(section, experiment)
  if experiment.fixed_width is None and len({width for width, _ in pairs}) == 1:
    pairs = [
      (width + extra, length)
      for width, length in pairs
      for extra in range(1 + 2 * (length is not None))
    ]
  means_by_condition = [
    collect(section, model, *pair, unsolved=True)[0] for pair in pairs
  ]
  judge_args = section, experiment.task
  return {
    site: judge(
      *judge_args, [means[site] for means in means_by_condition], site, -np.inf
    )
    for site in means_by_condition[0]
  }
