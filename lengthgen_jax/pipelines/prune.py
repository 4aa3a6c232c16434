"""This module prunes trained models: it closes the lines of their bias that
they do not need, before they are certified.

A model without some lines counts as good as before if it is right on held-out
examples of its training lengths, and the smallest margin there is at least
prune.margin_share of what it was with all lines. If its certificate then finds
inputs on which it is wrong, these are held-out examples too, and the model is
pruned again. W/certificate.json says which lines are closed; all modes leave
them out, unless prune.enabled is False.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax import rng, stopwatch
from lengthgen_jax.attention import pruning
from lengthgen_jax.attention.pruning import Entry, Paths
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines import runs
from lengthgen_jax.tasks import dataset, packing

RECORD = "pruning"  # the field of a certificate that says what was closed
EXAMPLES = 16  # that say which tokens are marks
BATCH_SIZE = 128  # held-out examples that are tested at once
MAX_TEXTS = 32  # counterexamples of one certificate that are held-out examples


def without_closed(section: ConfigDict, model: Model, previous: dict) -> Model:
  """Returns a model without the lines that a certificate says are closed.

  Args:
    section: config.prune; unless it is `enabled`, the model keeps all lines.
    model: the model with all lines.
    previous: the certificate of its seed, {} if there is none. One of another
      step is of another model.
  """
  record = previous.get(RECORD)
  if not section.enabled or not record or previous["step"] != model.step:
    return model
  closed = [Entry(*entry[:4]) for entry in record["closed"]]
  # A first stage that ended at the same step has no lines.
  is_of_model = all(entry.site in model.scaffold for entry in closed)
  return _without(model, closed) if is_of_model else model


def is_pruned_as_asked(section: ConfigDict, previous: dict) -> bool:
  """Returns whether a certificate is of a model that was pruned, or kept all
  lines, as config.prune says."""
  asked = section.margin_share if section.enabled else None
  return previous.get(RECORD, {}).get("margin_share") == asked


def certify_pruned(
  section: ConfigDict,
  model: Model,
  certify: Callable[[Model], dict],
  count: Callable[[Model], str],
) -> dict:
  """Returns the certificate of a model without the lines that it does not need,
  with the field RECORD if section.enabled is set.

  Notes say how many lines are closed, and how many contexts that saves; that a
  model that is wrong with all its lines is not pruned; or that the certificate
  found a model wrong without some lines, which are open again.

  Args:
    section: config.prune.
    model: the model with all lines.
    certify: function of a model that returns its certificate.
    count: function of a model that says how many contexts it has.
  """
  if not section.enabled:
    return certify(model)
  note = lambda text: runs.print_note(f"seed {model.seed}: {text}")
  texts, is_refuted = [], False
  while True:
    closed, margins = _prune(section, model, texts, keep_all=is_refuted)
    result = certify(_without(model, closed))
    if not closed or result["outcome"] != 0:
      break
    wrong = [x for x in result["counterexamples"][:MAX_TEXTS] if x not in texts]
    note(
      f"without {len(closed)} lines it is wrong on"
      f" {wrong[0] if wrong else 'some input'}: lines that this needs are open"
      " again"
    )
    texts, is_refuted = texts + wrong, not wrong
  names = model.experiment.site_segments
  describe = lambda entry: pruning.line(model.scaffold, entry).describe(
    names[entry.site]
  )
  num_lines = len(pruning.entries(model.scaffold, depths(model.experiment)))
  after = f"{result['contexts']:,}" if result["contexts"] else "too many"
  before = count(model) if closed else after
  if closed:
    note(
      f"closed {len(closed)} of {num_lines} lines that nothing needs:"
      f" {before} → {after} contexts"
    )
  elif not margins[0] > 0:
    note("wrong with all lines, so that none is closed")
  record = {
    "margin_share": section.margin_share,
    "lines": num_lines,
    # The site, layer, head and number of each line, and its equation.
    "closed": [[*entry, describe(entry)] for entry in closed],
    # Before and after: the smallest margin on held-out examples, and how many
    # contexts there are.
    "margins": margins,
    "contexts": [before, after],
  }
  return result | {RECORD: record}


def depths(experiment: Experiment) -> dict[str, int]:
  """Returns the number of layers of each attention site."""
  config = experiment.model.config
  layers = dict.fromkeys(experiment.model.sites, config.num_decoder_layers)
  if "encoder" in layers:
    layers["encoder"] = config.num_encoder_layers
  return layers


def _without(model: Model, closed: Sequence[Entry]) -> Model:
  """Returns a model without some of its lines."""
  scaffold = pruning.close(model.scaffold, closed, depths(model.experiment))
  return dataclasses.replace(model, scaffold=scaffold)


@stopwatch.phase("pruning")
def _prune(
  section: ConfigDict, model: Model, texts: Sequence[str], keep_all: bool
) -> tuple[list[Entry], tuple[float, float]]:
  """Returns the lines that a model does not need, none if `keep_all`, and the
  smallest margin with all lines and without these, on held-out examples and
  `texts`."""
  batches = [*_typed(model, texts), *_held_out(model.experiment, model.seed)]
  smallest_in = lambda model: (
    float(model.margins(batch).min()) for batch in batches
  )
  smallest = min(smallest_in(model))
  if keep_all or not smallest > 0:
    return [], (smallest, smallest)
  limit = section.margin_share * smallest

  def is_as_good(closed: list[Entry]) -> bool:
    margins = smallest_in(_without(model, closed))
    return all(margin > 0 and margin >= limit for margin in margins)

  closed = pruning.prune(paths(model), is_as_good)
  return closed, (smallest, min(smallest_in(_without(model, closed))))


def _held_out(experiment: Experiment, seed: int) -> Iterator[packing.Batch]:
  """Yields batches of held-out examples of every training width, as many as
  those of a validation."""
  head, key = experiment.task.name, rng.stream(seed, "pruning")
  (share,) = (x for x in experiment.validation if x.head == head)
  batches = [
    (part._replace(count=BATCH_SIZE), width_index)
    for width_index in range(experiment.num_widths)
    for part in share.parts
    for _ in range(0, part.count, BATCH_SIZE)
  ]
  for number, (part, width_index) in enumerate(batches):
    batch_key = jax.random.fold_in(key, number)
    yield experiment.sample(batch_key, head, part, width_index, held_out=True)


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
  experiment, layers = model.experiment, depths(model.experiment)
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
    lengths = experiment.nonzero_places(np.array(size, np.int32))
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
    coordinates["encoder"] = batch.source_keys, batch.source_keys
  tokens = np.concatenate(tokens, axis=1)
  return Paths(
    model.scaffold,
    layers,
    coordinates,
    np.flatnonzero(batch.weight[0]),
    (tokens != tokens[:1]).any(axis=0),  # marks are the same in all examples
    experiment.task.base,
  )
