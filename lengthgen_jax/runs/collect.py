"""Mean attention of a model under conditions of width and length."""

from functools import partial

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from lengthgen_jax import rng
from lengthgen_jax.tasks import data
from lengthgen_jax.tasks.plan import Part
from lengthgen_jax.trained import Model

PASS = 250  # samples at once


def conditions(config: ConfigDict, experiment) -> list[tuple]:
  """(width, length in units) to collect at; length None draws from training."""
  lengths = [experiment.task.units(n) for n in config.calibration.lengths]
  if experiment.task.ragged:
    return [(n, n) for n in lengths]
  widths = experiment.data[0].widths
  return [(w, n) for w in widths for n in lengths or [None]]


def collect(config: ConfigDict, model: Model, width: int, length) -> dict:
  """Mean attention of solved samples under one condition.

  Args:
    config: the whole config.
    model: an interpolated one.
    width: of the operands.
    length: units of every operand; None draws training examples.

  Returns:
    By site: mean and deviation [N, H, T, S] as `{site}` and `{site}_std`; and
    "solved", the share of samples that were solved, and "batch", whose
    coordinates are those of all samples.
  """
  section, experiment = config.calibration, model.experiment
  sums = None
  for start in range(0, section.samples, PASS):
    count = min(PASS, section.samples - start)
    batch = samples(experiment, model.seed, width, length, start, count)
    args = (experiment, model.params, model.scaffold, batch)
    found = _sums(*args, section.quantity)
    sums = found if sums is None else jax.tree.map(jnp.add, sums, found)
  solved = float(sums.pop("solved"))
  scale = experiment.model.config.head_dim**0.5
  scale = 1.0 if section.scaled or section.quantity == "weights" else scale
  result = {"solved": solved / section.samples, "batch": batch}
  for site in sites(experiment):
    mean = sums[site] / max(solved, 1.0)
    variance = sums[site + "_square"] / max(solved, 1.0) - mean**2
    result[site] = scale * mean
    result[site + "_std"] = scale * jnp.sqrt(jnp.maximum(variance, 0.0))
  return result


def sites(experiment) -> tuple[str, ...]:
  """Attention sites of decoder rows."""
  return tuple(s for s in experiment.site_segments if s != "encoder")


def samples(experiment, seed: int, width: int, length, start, count):
  key = jax.random.fold_in(rng.stream(seed, "calibration"), width)
  own = experiment.data[0]
  if length is None:
    turn = own.widths.index(width)
    key = jax.random.fold_in(key, start)
    head = experiment.task.name
    return experiment.sample(key, head, Part(0, count), turn)
  return data.test_batch(
    experiment.task,
    experiment.kind,
    next(iter(experiment.task.test_sets)),
    jax.random.fold_in(key, length),
    jnp.arange(start, start + count),
    length,
    width,
    width,
    (),
  )


@partial(jax.jit, static_argnums=(0, 4))
def _sums(experiment, params, scaffold, batch, quantity):
  """Sums over solved samples of attention and its square, per site."""
  head = experiment.task.name
  logits, acts = experiment.apply(params, scaffold, batch, head)
  right = (logits.argmax(-1) == batch.target) | (batch.weight == 0)
  pick = jnp.all(right, axis=1).astype(jnp.float32)
  sums = {"solved": pick.sum()}
  for site in sites(experiment):
    blocks = acts["decoder"]["blocks"]
    values = jnp.stack([block[site][quantity] for block in blocks])
    sums[site] = jnp.einsum("nbhts,b->nhts", values, pick)
    sums[site + "_square"] = jnp.einsum("nbhts,b->nhts", values**2, pick)
  return sums
