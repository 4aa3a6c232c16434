"""Pruning: the lines of a trained model's bias that it does not need are closed
before it is certified.

A model without some lines counts as good as before if it is right on held-out
examples of its training lengths, and the smallest margin there is at least
prune.margin_share of what it was with all lines. W/certificate.json says which
lines are closed; all modes leave them out, unless prune.enabled is False.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax import rng, stopwatch
from lengthgen_jax.attention import pruning
from lengthgen_jax.attention.pruning import Entry, Paths
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import dataset, packing

RECORD = "pruning"  # the field of a certificate that says what was closed
EXAMPLES = 16  # that say which tokens are marks
BATCH_SIZE = 128  # held-out examples that are tested at once


def without_closed(section: ConfigDict, model: Model, previous: dict) -> Model:
  """Returns a model without the lines that a certificate of its seed, {} if
  there is none, says are closed; unless config.prune, the section, is
  `enabled`, it keeps all lines, and if the certificate is of another step."""
  record = previous.get(RECORD)
  if not section.enabled or not record or previous["step"] != model.step:
    return model
  closed = [Entry(*entry[:4]) for entry in record["closed"]]
  # A first stage that ended at the same step has no lines.
  is_of_model = all(entry.site in model.scaffold for entry in closed)
  return without(model, closed) if is_of_model else model


def without(model: Model, closed: Sequence[Entry]) -> Model:
  """Returns a model without some of its lines."""
  depths = model.experiment.model.depths
  scaffold = pruning.close(model.scaffold, closed, depths)
  return dataclasses.replace(model, scaffold=scaffold)


@stopwatch.phase("pruning")
def prune(
  section: ConfigDict, model: Model, texts: Sequence[str], keep_all: bool
) -> tuple[list[Entry], tuple[float, float]]:
  """Returns the lines that a model does not need, none if `keep_all`, and the
  smallest margin with all lines and without these, on held-out examples and
  `texts`; section is config.prune."""
  batches = [*_typed(model, texts), *_held_out(model.experiment, model.seed)]
  smallest_in = lambda model: (
    float(model.margins(batch).min()) for batch in batches
  )
  smallest = min(smallest_in(model))
  if keep_all or not smallest > 0:
    return [], (smallest, smallest)
  limit = section.margin_share * smallest

  def is_as_good(closed: list[Entry]) -> bool:
    margins = smallest_in(without(model, closed))
    return all(margin > 0 and margin >= limit for margin in margins)

  closed = pruning.prune(paths(model), is_as_good)
  return closed, (smallest, min(smallest_in(without(model, closed))))


def _held_out(experiment: Experiment, seed: int) -> Iterator[packing.Batch]:
  """Yields batches of held-out examples of every training width, as many as
  those of a validation."""
  head, key = experiment.task.name, rng.stream(seed, "pruning")
  number = itertools.count()
  for width_index in range(experiment.width_counts[0]):
    for part in experiment.validation[0].parts:
      batch_part = part._replace(count=BATCH_SIZE)
      for _ in range(0, part.count, BATCH_SIZE):
        batch_key = jax.random.fold_in(key, next(number))
        yield experiment.sample(
          batch_key, head, batch_part, width_index, held_out=True
        )


def _typed(model: Model, texts: Sequence[str]) -> Iterator[packing.Batch]:
  """Yields a batch of each of some input texts; their arrays have one size."""
  experiment = model.experiment
  parsed = [experiment.task.parse(text) for text in texts]
  widths = [model.padded_width(lengths) for _, lengths in parsed]
  for typed, width in zip(parsed, widths, strict=True):
    bound = experiment.bound(dataset.widest(widths), model.scaffold)
    yield dataset.parsed_batch(
      experiment.task, experiment.kind, [typed], width, bound
    )


def paths(model: Model) -> Paths:
  """Returns the paths of a model's lines at a size that is large enough for the
  middle rows to be far from both ends."""
  experiment = model.experiment
  layers = experiment.model.depths
  intercepts = [
    np.where(x.valid[..., None], x.intercept, 0)
    for x in model.scaffold.values()
  ]
  hop = 1 + max(int(np.abs(x).max(initial=0)) for x in intercepts)
  length = 2 * hop * (1 + sum(layers.values()))
  if experiment.task.axes > 1:
    size = lengths = length, 4
  else:
    size = experiment.task.padded_width([length])
    # A number that is padded to this size has zeros before it.
    slack = 1 if experiment.fixed_width else experiment.task.slack
    lengths = np.array(size, np.int32) - slack
  batch = jax.tree.map(
    np.asarray,
    experiment.random_batch(
      jax.random.key(0),
      np.arange(EXAMPLES),
      np.array(lengths, np.int32),
      np.array(size, np.int32),
      size,
    ),
  )
  coordinates, tokens = {"self": (batch.rows, batch.keys)}, [batch.inputs]
  if batch.source is not None:
    tokens.append(batch.source)
    coordinates["cross"] = batch.rows, batch.source_keys
  tokens = np.concatenate(tokens, axis=1)
  return Paths(
    model.scaffold,
    layers,
    coordinates,
    np.flatnonzero(batch.weight[0]),
    (tokens != tokens[:1]).any(axis=0),  # marks are the same in all examples
    experiment.task.base,
  )
