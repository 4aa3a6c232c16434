"""Passes of a model for its probes, and probes while it trains."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import rng
from lengthgen_jax.errors import check
from lengthgen_jax.evaluation.trained import Model, models
from lengthgen_jax.pipelines import attention_statistics
from lengthgen_jax.probes.activations import Seen
from lengthgen_jax.probes.registry import PROBES, measured
from lengthgen_jax.tasks import data

MEMORY = 256 << 20  # bytes of scores and weights of a pass


def passes(
  model: Model,
  length: int,
  samples: int,
  *,
  seed=0,
  first=0,
  exact=True,
  **seen_fields,
):
  """A model on random inputs of its first test set: as many Seen as memory
  wants.

  Args:
    model: a trained one.
    length: as people count it.
    samples: how many inputs.
    seed: of the inputs.
    first: number of the first one.
    exact: whether batches are of this very size; else one program serves
      several lengths.
    how: more of a Seen.
  """
  experiment, task = model.experiment, model.experiment.task
  width, units = experiment.test_width(length), task.units(length)
  experiment.check_scaffold(width, model.scaffold)
  longest = width if exact else experiment.bound(width, model.scaffold)
  config = experiment.model.config
  cells = sum(t * s for t, s in experiment.site_sizes(longest).values())
  cost = 8 * cells * config.num_heads * config.num_decoder_layers
  samples = task.test_size(length, samples)
  count = math.ceil(samples / max(MEMORY // cost, 1))
  size = math.ceil(samples / count)
  key = jax.random.fold_in(rng.stream(seed, "probe"), length)
  for start in range(0, samples, size):
    index = first + np.minimum(np.arange(start, start + size), samples - 1)
    batch = data.test_batch(
      task,
      experiment.kind,
      next(iter(task.test_sets)),
      key,
      jnp.asarray(index),
      units,
      np.asarray(width, np.int32),
      longest,
      (),
    )
    yield Seen(model, batch, min(size, samples - start), units, **seen_fields)


def watcher(section, calibration, experiment):
  """What a run calls while it trains, None if nobody asked.

  Args:
    section: config.probe.
    calibration: config.calibration.
    experiment: the run's.

  Raises:
    UsageError: no probe is for this experiment.
  """
  if not section.every:
    return None
  model = Model(experiment, {}, {})
  watched = {name: probe for name, probe in PROBES.items() if probe.watched}
  supported = {
    name: probe for name, probe in watched.items() if probe.need.holds(model)
  }
  needs = {probe.need.words for probe in watched.values()}
  check(
    supported,
    f"probe.every={section.every}: what is watched is for"
    f" {' and '.join(sorted(needs))}; choose 0",
  )
  return partial(_rows, supported, calibration, section.samples)


def _rows(probes: dict, calibration, samples: int, run, states) -> list[dict]:
  """What probes find in every seed of a run's states."""
  rows = []
  for model in models(run, states, checkpoint="last"):
    r = run.seeds.index(model.seed)
    lines = partial(attention_statistics.strongest, calibration, model, samples)
    seen = passes(model, run.experiment.train_length, samples, lines=lines)
    for name, means in measured(probes, seen).items():
      rows += [
        {"step": int(states.step[r]), "seed": model.seed, "metric": name}
        | {"part": mean.part, "layer": mean.layer, "head": mean.head}
        | {"line": mean.line, "value": mean.value, "n": int(mean.count)}
        for mean in means.values()
      ]
  return rows
