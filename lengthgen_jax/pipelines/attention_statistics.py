"""Mean attention of a model under conditions of width and length, and what its
lines are worth."""

import copy
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import rng
from lengthgen_jax.attention import candidates, lines
from lengthgen_jax.attention.calibration import Condition, Rule, calibrate
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.tasks import data, plan

PASS = 250  # samples at once


def conditions(section, experiment) -> list[tuple]:
  """(width, length in units) to collect at; length None draws from training."""
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


def collect(section, model: Model, width, length, unsolved=False):
  """What an interpolated model attends to under one condition.

  Args:
    section: config.calibration.
    model: an interpolated one.
    width: of the operands.
    length: units of every operand; None draws training examples.
    unsolved: whether samples that are not solved count too.

  Returns:
    Of the samples that were solved, by site: a calibration.Condition, and the
    attention's deviation [N, H, T, S]; then how many were, in %.
  """
  experiment = model.experiment
  task, draw = experiment.task, partial(samples, experiment, model.seed)

  def sums(start: int) -> dict:
    count = min(PASS, section.samples - start)
    batch = draw(width, length, start, count)
    args = model.params, model.scaffold, batch, unsolved
    return _sums(model.mesh, experiment, section.quantity, *args)

  starts = range(0, section.samples, PASS)
  # Small arrays of every shape: a program for each operation costs more.
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
  used_T = example.rows.segment[0] == task.target
  if section.rows == "length":
    limit = length or task.units(experiment.train_length)
    if task.axes > 1:  # rows of the grid, of one operand's digits
      limit = limit[task.along.index(0)]
    used_T &= example.rows.left[0, :, 0] < limit
  means, deviations = {}, {}
  for site in sites(experiment):
    mean = total[site] / max(solved, 1.0)
    variance = total[site + "_square"] / max(solved, 1.0) - mean**2
    keys = example.keys if site == "self" else example.source_keys
    means[site] = Condition(scale * mean, used_T, example.rows, keys)
    deviations[site] = scale * np.sqrt(np.maximum(variance, 0.0))
  return means, deviations, 100 * solved / section.samples


def sites(experiment) -> tuple[str, ...]:
  """Attention sites of decoder rows."""
  return tuple(s for s in experiment.site_segments if s != "encoder")


def samples(experiment, seed: int, width, length, start, count):
  # One number names a condition: a grid's is its two numbers' digits.
  fold = lambda key, x: jax.random.fold_in(key, int(np.polyval(x, 1000)))
  key = fold(rng.stream(seed, "calibration"), np.atleast_1d(width))
  dataset = experiment.data[0]
  if length is None:
    turn = dataset.widths.index(width)
    key = jax.random.fold_in(key, start)
    return experiment.sample(
      key, experiment.task.name, plan.Part(0, count), turn
    )
  return data.test_batch(
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
def _sums(mesh, experiment, quantity, params, scaffold, batch, unsolved):
  """Sums over solved samples of attention and its square, per site."""
  batch = mesh.split(batch)
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
  return mesh.whole(sums)


def judge(
  section, task, conditions: list[Condition], site: str, threshold=None
):
  """Candidates of one site and the Verdict on them; `section` is
  config.calibration, whose κ a threshold takes the place of."""
  causal = site == "self"
  largest = max(conditions, key=lambda condition: condition.attention.shape[3])
  prompt_segments = set(range(len(task.segments)))
  tested_lines = candidates.candidates(
    largest.rows,
    largest.keys,
    task.target,
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


def strongest(section, model: Model, samples: int) -> dict:
  """{site: (Candidates, Verdict)} of a model as it is, solved or not: the lines
  that may be kept are all that are long enough, whatever their score. Where it
  was trained at one width, two more tell an operand's ends apart."""
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
