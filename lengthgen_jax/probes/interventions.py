"""Interventions, which knock out or patch something inside a model.

A head that is knocked out has a context of zero; a line that is closed is not
in the bias; a residual that is patched is, at one row, that of the next example
of the batch. Answers are those of a teacher-forced pass, whose exact match is
that of decoding unless a row is patched.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from lengthgen_jax.attention.biases.scaffold import SparsePlan
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.probes.activations import PLACES, Mean, Seen
from lengthgen_jax.tasks.packing import Batch


class Edit(NamedTuple):
  """A change to what a model computes.

  Attributes:
    heads: by site, [N, H], factors on every head's context.
    valid: by site, as in SiteLines, the lines that stay.
    place: number of the one of `places` where a residual is replaced, -1 for
      nowhere.
    row: the row whose residual is replaced.
    donors: for each of `places`, the residuals [B, L, D] that replace its own.
  """

  heads: dict[str, np.ndarray]
  valid: dict[str, np.ndarray]
  place: int
  row: int
  donors: list[jax.Array]


# The probes.


def intact(seen: Seen) -> Iterator[Mean]:
  """Yields exact match with nothing changed."""
  yield _mean(seen, nothing(seen))


def without_head(seen: Seen) -> Iterator[Mean]:
  """Yields exact match without each head in turn."""
  edit = nothing(seen)
  for site, ones in edit.heads.items():
    for layer, head in np.ndindex(ones.shape):
      factors = ones.copy()
      factors[layer, head] = 0.0
      knocked_out = edit._replace(heads=edit.heads | {site: factors})
      yield _mean(seen, knocked_out, part=site, layer=layer, head=head)


def without_line(seen: Seen) -> Iterator[Mean]:
  """Yields exact match without each line of the bias in turn.

  A line is closed in one head; in all heads of its layer (head None); and
  everywhere (layer None too).
  """
  edit = nothing(seen)
  for (site, layer, head, words), cells in lines(seen.model).items():
    valid = edit.valid[site].copy()
    valid[*zip(*cells, strict=True)] = False
    closed = edit._replace(valid=edit.valid | {site: valid})
    yield _mean(seen, closed, part=site, layer=layer, head=head, line=words)


def patched(seen: Seen) -> Iterator[Mean]:
  """Yields exact match with one residual of the next example.

  There is a mean for each row at each of `places`. Together they are a map of
  what every output depends on.
  """
  edit = nothing(seen)
  residuals = _run(seen, edit)[2]
  edit = edit._replace(donors=[jnp.roll(x, 1, axis=0) for x in residuals])
  rows = int((seen.at.rows.segment[0] >= 0).sum())
  for number, (part, layer) in enumerate(places(seen.experiment)):
    for row in range(
      int(seen.at.prompt_length[0]) if part == "source" else rows
    ):
      swapped = edit._replace(place=number, row=row)
      yield _mean(seen, swapped, part=part, layer=layer, position=row)


def enough_lines(seen: Seen) -> Iterator[Mean]:
  """Yields lines that are enough together, each with their common exact match.

  Each line is closed in turn, those that matter least alone first, and stays
  closed if no answer is lost by that. The lines that are left are yielded.
  """
  edit = nothing(seen)
  intact_hits = _mean(seen, edit).total
  cells = {
    key: entries[0]
    for key, entries in lines(seen.model).items()
    if key[2] is not None
  }

  def without(valid: dict, key: tuple) -> dict:
    entries = valid[key[0]].copy()
    entries[cells[key]] = False
    return valid | {key[0]: entries}

  def mean_of(valid: dict) -> Mean:
    return _mean(seen, edit._replace(valid=valid))

  hits_without = {key: mean_of(without(edit.valid, key)).total for key in cells}
  needed, valid = [], edit.valid
  for key in sorted(cells, key=hits_without.get, reverse=True):
    fewer = without(valid, key)
    if mean_of(fewer).total >= intact_hits:
      valid = fewer
    else:
      needed.append(key)
  mean = mean_of(valid)
  for site, layer, head, words in needed:
    yield mean._replace(part=site, layer=layer, head=head, line=words)


# What can be changed.


def places(experiment: Experiment) -> list[tuple[str, int | None]]:
  """Returns (part, layer) of the residuals that can be patched.

  They are the embedded source, the decoder's embedded inputs, and the residual
  stream at PLACES of the decoder's blocks.
  """
  parts = [("source", None)] * ("cross" in experiment.model.sites)
  parts.append(("inputs", None))
  layers = range(experiment.model.config.num_decoder_layers)
  return parts + [(place, layer) for layer in layers for place in PLACES]


def lines(model) -> dict[tuple, list[tuple[int, int, int]]]:
  """Returns the cells of a scaffold that hold one and the same line.

  Args:
    model: a trained.Model.

  Returns:
    Lists of (layer, head, number) by (site, layer, head, words), with head None
    for all heads of a layer, and layer None for all layers (or where one set of
    lines serves them all).
  """
  cells = {}
  for site, site_lines in model.scaffold.items():
    if not site_lines.supports_sparse:
      continue
    names = model.experiment.site_segments[site]
    layers = site_lines.shape[0]
    for index in np.argwhere(np.asarray(site_lines.valid)):
      layer_index, head, number = map(int, index)
      words = site_lines.lines.take(tuple(index)).describe(names)
      layer = layer_index if layers > 1 else None
      for scope in dict.fromkeys([(layer, head), (layer, None), (None, None)]):
        cells.setdefault((site, *scope, words), []).append(
          (layer_index, head, number)
        )
  return cells


def nothing(seen: Seen) -> Edit:
  """Returns the edit that changes nothing."""
  experiment, model = seen.experiment, seen.model
  config = experiment.model.config
  depths = dict.fromkeys(experiment.model.sites, config.num_decoder_layers)
  if "encoder" in depths:
    depths["encoder"] = config.num_encoder_layers
  shape = lambda depth: (depth, config.num_heads)
  count, rows = seen.batch.inputs.shape
  sources = 0 if seen.batch.source is None else seen.batch.source.shape[1]
  return Edit(
    {
      site: np.ones(shape(depth), np.float32)
      for site, depth in depths.items()
      if depth
    },
    {
      site: np.asarray(site_lines.valid)
      for site, site_lines in model.scaffold.items()
      if site_lines.supports_sparse
    },
    -1,
    0,
    [
      jnp.zeros(
        (count, sources if part == "source" else rows, config.emb_dim),
        config.dtype,
      )
      for part, _ in places(experiment)
    ],
  )


# One pass under an edit.


def _mean(seen: Seen, edit: Edit, **fields) -> Mean:
  """Returns exact match under an edit, and how often each output is right."""
  right, exact, _ = _run(seen, edit)
  count = seen.count
  scored = np.asarray(seen.at.weight)[:count] > 0
  right_outputs = np.asarray(right)[:count][scored].reshape(count, -1)
  return Mean(
    int(np.asarray(exact)[:count].sum()),
    count,
    by_position=right_outputs.sum(axis=0),
    success=True,
    **fields,
  )


def _run(
  seen: Seen, edit: Edit
) -> tuple[jax.Array, jax.Array, list[jax.Array]]:
  """Returns `_hits` of a model on its batch."""
  model = seen.model
  args = seen.experiment, model.params, model.scaffold, seen.batch, edit
  return _hits(*args, model.sparse_plan)


@partial(jax.jit, static_argnums=(0, 5))
def _hits(
  experiment: Experiment,
  params: dict,
  scaffold: dict,
  batch: Batch,
  edit: Edit,
  sparse_plan: SparsePlan | None,
) -> tuple[jax.Array, jax.Array, list[jax.Array]]:
  """Returns experiment.hits under an edit, and the residuals of `places`.

  The edit is traced, so that one program serves all edits.
  """
  edited_scaffold = {
    site: bias._replace(valid=edit.valid[site]) if site in edit.valid else bias
    for site, bias in scaffold.items()
  }
  residuals = {}
  with nn.intercept_methods(
    partial(_edited, places(experiment), edit, residuals)
  ):
    right, exact = experiment.hits(
      params,
      edited_scaffold,
      batch,
      experiment.task.name,
      sparse_plan=sparse_plan,
    )
  return right, exact, [residuals[number] for number in range(len(residuals))]


def _edited(
  patchable: list[tuple],
  edit: Edit,
  residuals: dict[int, jax.Array],
  call: Callable,
  args: tuple,
  kwargs: dict,
  context: nn.module.InterceptorContext,
) -> Any:
  """Calls a method of a module and applies the edit to what goes in or out.

  This is an interceptor of flax methods, with the arguments that follow
  `residuals`.

  Args:
    patchable: the `places`.
    edit: what is changed.
    residuals: the residuals of the places go here, by number.
    call: the method itself.
    args, kwargs: of the method.
    context: says which method of which module it is.

  Returns:
    What the method returns, or what replaces it.
  """
  path, method = context.module.path, context.method_name
  if path[-1:] == ("out",):
    stack, _, layer = path[0].partition("_")
    site = "encoder" if stack == "encoder" else path[1].partition("_")[0]
    factors = edit.heads[site][int(layer)][:, None, None]
    (context_BxHxTxK,) = args
    args = (context_BxHxTxK * factors.astype(context_BxHxTxK.dtype),)
  output = call(*args, **kwargs)
  place = _place(path, method, args)
  if place not in patchable:
    return output
  number = patchable.index(place)
  is_patched = jnp.arange(output.shape[1]) == edit.row
  is_patched &= edit.place == number
  residuals[number] = jnp.where(
    is_patched[:, None], edit.donors[number], output
  )
  return residuals[number]


def _place(
  path: tuple[str, ...], method: str, args: tuple
) -> tuple[str, int | None] | None:
  """Returns which of `places` a method of a module returns, or None."""
  if method == "embed" and not path:
    return {"self": "inputs", "cross": "source"}[args[2]], None
  if method == "residual" and path[0].startswith("decoder_"):
    return args[0], int(path[0].rpartition("_")[2])
  return None
