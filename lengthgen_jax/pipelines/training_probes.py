"""The forward passes that probes look at, and probes during training."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import rng
from lengthgen_jax.errors import check
from lengthgen_jax.evaluation.trained import Model, models
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines import attention_statistics
from lengthgen_jax.probes.activations import Seen
from lengthgen_jax.probes.registry import PROBES, Probe, measured
from lengthgen_jax.tasks import dataset
from lengthgen_jax.training import loop
from lengthgen_jax.training.train_step import TrainState

MEMORY = 256 << 20  # bytes that the scores and weights of a pass may take


def passes(
  model: Model,
  length: int,
  samples: int,
  *,
  seed: int = 0,
  first: int = 0,
  exact: bool = True,
  **seen_fields,
) -> Iterator[Seen]:
  """Runs a model on random inputs of its task's first test set.

  Args:
    model: A trained model.
    length: The length of the inputs, as people count it.
    samples: How many inputs there are.
    seed: The seed of the inputs.
    first: The number of the first input.
    exact: Whether batches are padded to exactly this length; otherwise one
      compiled program serves several lengths.
    seen_fields: Further fields of Seen.

  Yields:
    A Seen for each batch; there are as many batches as memory requires.
  """
  experiment, task = model.experiment, model.experiment.task
  width, units = experiment.test_width(length), task.units(length)
  experiment.check_scaffold(width, model.scaffold)
  longest = width if exact else experiment.bound(width, model.scaffold)
  config = experiment.model.config
  cells = sum(t * s for t, s in experiment.site_sizes(longest).values())
  cost = 8 * cells * config.num_heads * config.num_decoder_layers
  samples = task.num_test_samples(length, samples)
  count = math.ceil(samples / max(MEMORY // cost, 1))
  size = math.ceil(samples / count)
  key = jax.random.fold_in(rng.stream(seed, "probe"), length)
  for start in range(0, samples, size):
    index = first + np.minimum(np.arange(start, start + size), samples - 1)
    batch = dataset.test_batch(
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


def make_watcher(
  section, calibration, experiment: Experiment
) -> Callable[..., list[dict]] | None:
  """Returns the function that probes a run while it trains.

  Args:
    section: The section config.probe.
    calibration: The section config.calibration.
    experiment: The experiment of the run.

  Returns:
    A function from the run and its states to rows; None if probe.every is 0.

  Raises:
    UsageError: None of the probes is for this experiment.
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


def _rows(
  probes: dict[str, Probe],
  calibration,
  samples: int,
  run: loop.Run,
  states: TrainState,
) -> list[dict]:
  """Returns the rows that probes measure on every seed of a run's states."""
  rows = []
  for model in models(run, states, checkpoint="last"):
    r = run.seeds.index(model.seed)
    lines = partial(
      attention_statistics.strongest_lines, calibration, model, samples
    )
    seen = passes(model, run.experiment.train_length, samples, lines=lines)
    for name, means in measured(probes, seen).items():
      rows += [
        {"step": int(states.step[r]), "seed": model.seed, "metric": name}
        | {"part": mean.part, "layer": mean.layer, "head": mean.head}
        | {"line": mean.line, "value": mean.value, "n": int(mean.count)}
        for mean in means.values()
      ]
  return rows
