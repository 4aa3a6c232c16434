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
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax import rng, stopwatch
from lengthgen_jax.attention import pruning
from lengthgen_jax.attention.pruning import Entry, Paths
from lengthgen_jax.certify import certificate
from lengthgen_jax.certify.receptive_fields import num_layers
from lengthgen_jax.errors import UsageError
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines import runs
from lengthgen_jax.tasks import dataset, packing

RECORD = "pruning"  # the field of a certificate that says what was closed
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
  return _without(model, [Entry(*closed[:4]) for closed in record["closed"]])


def is_pruned_as_asked(section: ConfigDict, previous: dict) -> bool:
  """Returns whether a certificate is of a model that was pruned, or kept all
  lines, as config.prune says."""
  asked = section.margin_share if section.enabled else None
  return previous.get(RECORD, {}).get("margin_share") == asked


def certify_pruned(
  section: ConfigDict, model: Model, certify: Callable[[Model], dict]
) -> dict:
  """Returns the certificate of a model without the lines that it does not need.

  Notes say how many lines are closed, and how many contexts that saves; or that
  a model that is wrong with all its lines is not pruned; or that the
  certificate found a model wrong without some lines, which are open again.

  Args:
    section: config.prune.
    model: the model with all lines.
    certify: function of a model that returns its certificate.

  Returns:
    The certificate, with the field RECORD if section.enabled is set.
  """
  if not section.enabled:
    return certify(model)
  note = lambda text: runs.print_note(f"seed {model.seed}: {text}")
  texts, is_refuted = [], False
  while True:
    closed, margins = _prune(section, model, texts, keep_all=is_refuted)
    result = certify(_without(model, closed))
    if not closed or result["value"] != 0:
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
  after = result["cases"]
  before = _cases(model) if closed else after
  if closed:
    note(
      f"closed {len(closed)} of {num_lines} lines that nothing needs:"
      f" {f'{before:,}' if before else '?'} → {after:,} contexts"
    )
  elif not margins[0] > 0:
    note("wrong with all lines, so that none is closed")
  record = {
    "margin_share": section.margin_share,
    "lines": num_lines,
    # The site, layer, head and number of each line, and its equation.
    "closed": [[*entry, describe(entry)] for entry in closed],
    # The smallest margin on held-out examples, before and after; contexts too.
    "margins": margins,
    "cases": [before, after],
  }
  return result | {RECORD: record}


def depths(experiment: Experiment) -> dict[str, int]:
  """Returns the number of layers of each attention site."""
  return {site: num_layers(experiment, site) for site in experiment.model.sites}


def _without(model: Model, closed: Sequence[Entry]) -> Model:
  """Returns a model without some of its lines."""
  scaffold = pruning.close(model.scaffold, closed, depths(model.experiment))
  return dataclasses.replace(model, scaffold=scaffold)


def _cases(model: Model) -> int | None:
  """Returns the number of contexts of a model; None if they cannot be
  listed."""
  try:
    return certificate.make_survey(model.experiment, model.scaffold).cases
  except UsageError:
    return None


@stopwatch.phase("pruning")
def _prune(
  section: ConfigDict, model: Model, texts: Sequence[str], keep_all: bool
) -> tuple[list[Entry], tuple[float, float]]:
  """Returns the lines that a model does not need, and the smallest margin with
  all lines and without these.

  Args:
    section: config.prune.
    model: the model with all lines.
    texts: inputs on which the pruned model must be right, besides held-out
      examples.
    keep_all: whether no line is closed.
  """
  batches = [*_typed(model, texts), *_held_out(model.experiment, model.seed)]
  smallest = min(_margin(model, batch) for batch in batches)
  if keep_all or not smallest > 0:
    return [], (smallest, smallest)
  limit = section.margin_share * smallest

  def is_as_good(closed: list[Entry]) -> bool:
    pruned = _without(model, closed)
    margins = (_margin(pruned, batch) for batch in batches)
    return all(margin > 0 and margin >= limit for margin in margins)

  closed = pruning.prune(paths(model), is_as_good)
  pruned = _without(model, closed)
  return closed, (smallest, min(_margin(pruned, batch) for batch in batches))


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


def _margin(model: Model, batch: packing.Batch) -> float:
  """Returns the smallest margin of a batch: how far the logit of a right token
  is above the largest other one; -inf if it is no number."""
  margin = _smallest_margin(
    model.experiment, model.params, model.scaffold, batch
  )
  return float(np.nan_to_num(margin, nan=-np.inf))


@partial(jax.jit, static_argnums=0)
def _smallest_margin(
  experiment: Experiment, params: dict, scaffold: dict, batch: packing.Batch
) -> jax.Array:
  """Computes `_margin`; NaN if a logit is no number."""
  logits, _ = experiment.apply(params, scaffold, batch, experiment.task.name)
  target = jnp.asarray(batch.target)[..., None]
  right = jnp.take_along_axis(logits, target, axis=-1)
  is_right = jnp.arange(logits.shape[-1]) == target
  margins = right - jnp.where(is_right, -jnp.inf, logits)
  scored = (jnp.asarray(batch.weight) > 0)[..., None]
  return jnp.where(scored, margins, jnp.inf).min()


def paths(model: Model) -> Paths:
  """Returns the paths of a model's lines at a size of its survey that is large
  enough for the middle rows to be far from both ends."""
  experiment, survey = (
    model.experiment,
    certificate.make_survey(model.experiment, model.scaffold),
  )
  sizes = list(survey.sizes())
  size = sizes[len(sizes) // 2]
  if isinstance(size, tuple):  # of a grid: with all rows of the lemma
    size = size[0], survey.largest[1]
  batch = jax.tree.map(
    np.asarray,
    experiment.random_batch(
      jax.random.key(0),
      np.zeros(1, np.int32),
      experiment.nonzero_places(np.array(size, np.int32)),
      np.array(size, np.int32),
      survey.bound(survey.largest),  # as in the survey, whose program this is
    ),
  )
  layout = next(iter(survey.tapes(size, batch)))
  coordinates = {"self": (batch.rows, batch.keys)}
  if batch.source is not None:
    coordinates["cross"] = batch.rows, batch.source_keys
    coordinates["encoder"] = batch.source_keys, batch.source_keys
  tokens = layout.tokens["decoder"] + layout.tokens.get("encoder", [])
  return Paths(
    model.scaffold,
    depths(experiment),
    coordinates,
    np.flatnonzero(batch.weight[0]),
    np.array([token.kind != "mark" for token in tokens]),
    experiment.task.base,
  )
