"""Probes that intervene: ablation of heads and lines, and activation patching.

A head is knocked out by zeroing its output projection. A line is closed by
removing it from the bias. A residual is patched by replacing it, in one row, by
that of another example of the batch. Exact match is measured with teacher
forcing. It equals that of greedy decoding, except under a patch and where the
bias lets rows see later outputs (bias.allow_leak).
"""

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from lengthgen_jax.attention import pruning
from lengthgen_jax.evaluation.trained import Model, scored
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.probes.activations import RESIDUALS, Mean, Observation
from lengthgen_jax.tasks.packing import Batch

Point = tuple[str, int | None]  # (part, layer) of a residual


class BiasLine(NamedTuple):
  """A line of the bias, in one head or in several."""

  part: str  # the attention site
  layer: int | None  # None for all, also if they share one set of lines
  head: int | None  # None for all
  line: str  # as `Lines.describe` writes it, like "b: right-1·row = 0"


class Patch(NamedTuple):
  """Which residual is replaced by that of another example."""

  point: int  # the index of the residual in `patch_points`; -1 for none
  row: int  # the index of the row, or of the source token


NO_PATCH = Patch(-1, 0)


# The probes.


def intact(observation: Observation) -> Iterator[Mean]:
  """Yields exact match without an intervention."""
  yield _exact_match(observation, edited_logits(observation))


def without_head(observation: Observation) -> Iterator[Mean]:
  """Yields exact match without each head in turn."""
  model = observation.model
  transformer = model.experiment.model
  for site, depth in transformer.depths.items():
    for layer, head in np.ndindex(depth, transformer.config.num_heads):
      params = model.without_head(layer, site, head).params
      logits = edited_logits(observation, params=params)
      yield _exact_match(observation, logits, part=site, layer=layer, head=head)


def without_line(observation: Observation) -> Iterator[Mean]:
  """Yields exact match without each line of the bias in turn.

  There is a mean for the line closed in one head, one for all heads of its
  layer (head None), and one for all layers of its site (layer None too). If all
  layers share their lines, there is one for head h of every layer (layer None)
  and one for all heads of every layer.
  """
  model = observation.model
  depths = model.experiment.model.depths
  for line, entries in bias_lines(model).items():
    closed = pruning.close(model.scaffold, entries, depths)
    logits = edited_logits(observation, scaffold=closed)
    yield _exact_match(observation, logits, **line._asdict())


def enough_lines(observation: Observation) -> Iterator[Mean]:
  """Yields a small set of lines that suffices for the intact exact match.

  The search is greedy: each line of each head is closed in turn, beginning with
  those whose ablation alone costs the least exact match, and stays closed if
  exact match is no lower than the intact model's. Each line that stays open is
  yielded, with the exact match of all of them together.
  """
  scaffold, lines = observation.model.scaffold, bias_lines(observation.model)
  depths = observation.experiment.model.depths

  def without(scaffold: dict, line: BiasLine) -> tuple[dict, Mean]:
    closed = pruning.close(scaffold, lines[line], depths)
    logits = edited_logits(observation, scaffold=closed)
    return closed, _exact_match(observation, logits)

  (mean,), needed = intact(observation), []
  of_heads = [line for line in lines if line.head is not None]
  totals = {line: without(scaffold, line)[1].total for line in of_heads}
  for line in sorted(of_heads, key=lambda line: -totals[line]):
    closed, closed_mean = without(scaffold, line)
    if closed_mean.total >= mean.total:
      scaffold, mean = closed, closed_mean
    else:
      needed.append(line)
  for line in needed:
    yield dataclasses.replace(mean, **line._asdict())


def patched(observation: Observation) -> Iterator[Mean]:
  """Yields exact match with one residual patched from another example.

  That is the example before it in the batch, or the last one for the first.
  There is a mean for each row of each residual in `patch_points`. Together they
  show which residuals each output depends on. Nothing is yielded for a batch of
  which only one example counts, because there is no other.
  """
  if observation.count < 2:
    return
  batch = observation.batch
  num_rows = int((batch.rows.segment[0] >= 0).sum())  # without padding
  points = patch_points(observation.experiment)
  for index, (part, layer) in enumerate(points):
    count = int(batch.prompt_length[0]) if part == "source" else num_rows
    for row in range(count):
      logits = edited_logits(observation, patch=Patch(index, row))
      yield _exact_match(
        observation, logits, part=part, layer=layer, position=row
      )


def _exact_match(
  observation: Observation, logits: jax.Array, **location: Any
) -> Mean:
  """Returns the exact match of logits [B, T, V] after an intervention at a
  location, the fields of the Mean."""
  batch, count = observation.batch, observation.count
  is_right = scored(batch, logits.argmax(-1) == batch.target)[:count]
  return Mean(
    int(is_right.all(axis=1).sum()),
    count,
    by_position=is_right.sum(axis=0),
    success=True,
    **location,
  )


# Edits of parameters, of the bias and of residuals.


def bias_lines(model: Model) -> dict[BiasLine, list[pruning.Entry]]:
  """Returns, for each line of a model's bias, its entries in the scaffold.

  A line is listed for each head, for all heads of a layer, and for all layers.
  Sites whose bias is a matrix have none.
  """
  lines = {}
  for entry in model.entries:
    site, layer, head, _ = entry
    layer = layer if model.scaffold[site].shape[0] > 1 else None
    for scope in dict.fromkeys([(layer, head), (layer, None), (None, None)]):
      line = BiasLine(site, *scope, model.equation(entry))
      lines.setdefault(line, []).append(entry)
  return lines


def patch_points(experiment: Experiment) -> list[Point]:
  """Returns the residuals that can be patched, as (part, layer).

  They are ("source", None), the embeddings of the source, if there is one;
  ("inputs", None), those of the decoder's inputs; and the RESIDUALS of each
  decoder block.
  """
  depths = experiment.model.depths
  embedded = ("source", "inputs") if "cross" in depths else ("inputs",)
  layers = range(depths["self"])
  return [
    *((name, None) for name in embedded),
    *((name, layer) for layer in layers for name in RESIDUALS),
  ]


def edited_logits(
  observation: Observation, patch: Patch = NO_PATCH, **edited: dict
) -> jax.Array:
  """Returns the logits [B, T, V] of a pass with a patch, or with other `params`
  or another `scaffold` than the model's."""
  model = observation.model
  trees = {"params": model.params, "scaffold": model.scaffold} | edited
  static_args = model.experiment, model.is_sparse
  return _logits(*static_args, observation.batch, patch, **trees)


@partial(jax.jit, static_argnums=(0, 1))
def _logits(
  experiment: Experiment,
  sparse: bool,
  batch: Batch,
  patch: Patch,
  params: dict,
  scaffold: dict,
) -> jax.Array:
  """One program serves all interventions."""
  points = patch_points(experiment)

  def intercept(method, args, kwargs, context):
    output = method(*args, **kwargs)
    if context.method_name != "record":
      return output
    stack, _, layer = "".join(context.module.path[:1]).partition("_")
    point = args[0], int(layer) if layer else None
    if stack == "encoder" or point not in points:
      return output
    # There is only one patch, so no earlier one has changed `output`.
    other_example = jnp.roll(output, 1, axis=0)
    is_patched = jnp.arange(output.shape[1]) == patch.row
    is_patched &= patch.point == points.index(point)
    return jnp.where(is_patched[:, None], other_example, output)

  with nn.intercept_methods(intercept):
    return experiment.apply(
      params, scaffold, batch, experiment.task.name, sparse=sparse
    )[0]
