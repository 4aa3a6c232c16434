"""Models observed on random inputs, and probes during training."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax import rng
from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.errors import check
from lengthgen_jax.evaluation.trained import Model, attention_bytes, models
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines.attention_statistics import strongest_lines
from lengthgen_jax.probes.activations import Observation
from lengthgen_jax.probes.registry import PROBES, measure
from lengthgen_jax.training import loop

ATTENTION_BYTES = 256 << 20  # most, of the scores and weights of a batch


def observations(
  model: Model,
  length: int,
  samples: int,
  *,
  seed: int = 0,
  first: int = 0,
  exact: bool = True,
  calibration: ConfigDict | None = None,
) -> Iterator[Observation]:
  """Yields observations of a model on random inputs of its task's first test
  set, in as many batches as memory requires.

  Args:
    model: a trained model.
    length: the length of the inputs, in the unit of the task.
    samples: how many inputs there are, or fewer if the length has fewer.
    seed: the seed of the inputs.
    first: the index of the first input.
    exact: whether batches are padded to exactly this length; otherwise one
      compiled program serves several lengths.
    calibration: config.calibration, by which probes find the strongest lines of
      the model's attention.

  Raises:
    UsageError: the model takes no inputs of this length.
  """
  scored_lines = dict
  if calibration is not None:
    scored_lines = partial(strongest_lines, calibration, model, samples)
  experiment, task = model.experiment, model.experiment.task
  width, units = experiment.test_width(length), task.units(length)
  experiment.check_scaffold(width, model.scaffold)
  longest = width if exact else experiment.bound(width, model.scaffold)
  layers = experiment.model.config.num_decoder_layers
  example_bytes = layers * attention_bytes(experiment, longest, None)
  samples = task.num_test_samples(length, samples)
  num_batches = math.ceil(samples / max(ATTENTION_BYTES // example_bytes, 1))
  batch_size = math.ceil(samples / num_batches)
  key = jax.random.fold_in(rng.stream(seed, "probe"), length)
  for start in range(0, samples, batch_size):
    index = np.minimum(np.arange(start, start + batch_size), samples - 1)
    batch = experiment.random_batch(
      key,
      jnp.asarray(first + index),
      units,
      np.asarray(width, np.int32),
      longest,
    )
    count, batch = min(batch_size, samples - start), jax.device_get(batch)
    yield Observation(model, batch, count, units, scored_lines)


def make_watcher(
  section: ConfigDict,
  calibration: ConfigDict,
  experiment: Experiment,
  scaffold: dict,
) -> Callable[[loop.Run, loop.TrainState], list[dict]] | None:
  """Returns the function that probes a run while it trains.

  Args:
    section: config.probe.
    calibration: config.calibration, by which the strongest lines of a model's
      attention are found, for probes of them.
    experiment: the experiment of the run.
    scaffold: the scaffold of the run, with its leading axis of seeds.

  Returns:
    A function of the run and the states [R, ...] of its seeds that returns rows
    of watched.jsonl, one for each seed and each `Mean` of a probe; None if
    probe.every is 0.

  Raises:
    UsageError: none of the probes that run during training is for models of
      this experiment with this scaffold.
  """
  if not section.every:
    return None
  watched = {name: probe for name, probe in PROBES.items() if probe.watched}
  untrained = Model(experiment, of_seed(scaffold, 0), {})
  probes = {
    name: probe
    for name, probe in watched.items()
    if probe.requires.holds(untrained)
  }
  requirements = {probe.requires.text for probe in watched.values()}
  check(
    probes,
    f"probe.every={section.every}: probes during training are for"
    f" {' and for '.join(sorted(requirements))} alone; choose probe.every=0",
  )

  def watch(run: loop.Run, states: loop.TrainState) -> list[dict]:
    rows = []
    # With the current parameters, not those that were best in validation.
    run_models = models(run, states, checkpoint="last")
    for step, model in zip(states.step.tolist(), run_models, strict=True):
      batches = observations(
        model,
        experiment.train_length,
        section.samples,
        calibration=calibration,
      )
      for name, means in measure(probes, batches).items():
        rows += [
          {"step": step, "seed": model.seed, "metric": name}
          | {"part": mean.part, "layer": mean.layer, "head": mean.head}
          | {"line": mean.line, "value": mean.value, "n": int(mean.count)}
          for mean in means.values()
        ]
    return rows

  return watch
