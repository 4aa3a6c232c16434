"""What happens to the answers if something inside is taken away or replaced.

A head knocked out has a context of zero; a closed line is not in the bias; a
patched residual is, at one row, that of the next example. Answers are those of
a teacher-forced pass, whose exact match is that of decoding unless a row is
patched.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from lengthgen_jax.attention.candidates import phrase
from lengthgen_jax.probes.activations import PLACES, Mean, Seen


class Edit(NamedTuple):
  """What is changed.

  Attributes:
    heads: by site, [N, H], factors on every head's context.
    valid: by site, as in SiteLines, the lines that stay.
    place: number of one of `places` where a residual is replaced; -1: nowhere.
    row: at which row.
    donors: for each of `places`, what takes its place, [B, L, D].
  """

  heads: dict
  valid: dict
  place: int
  row: int
  donors: list


# The probes.


def intact(seen: Seen):
  """Exact match with nothing changed."""
  yield _mean(seen, nothing(seen))


def without_head(seen: Seen):
  """Exact match without each head in turn."""
  edit = nothing(seen)
  for site, ones in edit.heads.items():
    for n, h in np.ndindex(ones.shape):
      factors = ones.copy()
      factors[n, h] = 0.0
      own = edit._replace(heads=edit.heads | {site: factors})
      yield _mean(seen, own, part=site, layer=n, head=h)


def without_line(seen: Seen):
  """Exact match without each line of the bias in turn: in one head; in all
  heads of its layer (head None); and everywhere (layer None too)."""
  edit = nothing(seen)
  for (site, layer, head, words), cells in lines(seen.model).items():
    valid = edit.valid[site].copy()
    valid[*zip(*cells, strict=True)] = False
    own = edit._replace(valid=edit.valid | {site: valid})
    yield _mean(seen, own, part=site, layer=layer, head=head, line=words)


def patched(seen: Seen):
  """Exact match with the residual of one row, at one place, as it is for the
  next example: a map of what every output depends on."""
  edit = nothing(seen)
  found = _run(seen, edit)[2]
  edit = edit._replace(donors=[jnp.roll(x, 1, axis=0) for x in found])
  rows = int((seen.at.rows.segment[0] >= 0).sum())
  for number, (part, layer) in enumerate(places(seen.experiment)):
    for row in range(int(seen.at.items[0]) if part == "source" else rows):
      own = edit._replace(place=number, row=row)
      yield _mean(seen, own, part=part, layer=layer, position=row)


def enough_lines(seen: Seen):
  """Lines that are enough together: each is closed in turn, those that matter
  least alone first, and stays closed if no answer is lost by that. Yields the
  lines left, each with the exact match that they all have."""
  edit = nothing(seen)
  wanted = _mean(seen, edit).total
  cells = {
    at: own[0] for at, own in lines(seen.model).items() if at[2] is not None
  }

  def without(valid: dict, at: tuple) -> dict:
    own = valid[at[0]].copy()
    own[cells[at]] = False
    return valid | {at[0]: own}

  def found(valid: dict) -> Mean:
    return _mean(seen, edit._replace(valid=valid))

  alone = {at: found(without(edit.valid, at)).total for at in cells}
  left, valid = [], edit.valid
  for at in sorted(cells, key=alone.get, reverse=True):
    fewer = without(valid, at)
    if found(fewer).total >= wanted:
      valid = fewer
    else:
      left.append(at)
  last = found(valid)
  for site, layer, head, words in left:
    yield last._replace(part=site, layer=layer, head=head, line=words)


# What can be changed.


def places(experiment) -> list[tuple]:
  """(part, layer) of residuals that can be patched: the embedded source, the
  decoder's embedded inputs, and its blocks'."""
  found = [("source", None)] * ("cross" in experiment.model.sites)
  found.append(("inputs", None))
  layers = range(experiment.model.config.num_decoder_layers)
  return found + [(place, n) for n in layers for place in PLACES]


def lines(model) -> dict:
  """(layer, head, number) of the lines of a scaffold that are one: by (site,
  layer, head, words), with head None for all heads of a layer, and layer None
  for all layers (or where one set of lines serves them all)."""
  found = {}
  for site, own in model.scaffold.items():
    if not own.lined:
      continue
    names = model.experiment.site_segments[site]
    layers = own.shape[0]
    for at in np.argwhere(np.asarray(own.valid)):
      n, h, k = map(int, at)
      words = phrase([np.asarray(x)[n, h, k] for x in own[:5]], names)
      layer = n if layers > 1 else None
      for where in dict.fromkeys([(layer, h), (layer, None), (None, None)]):
        found.setdefault((site, *where, words), []).append((n, h, k))
  return found


def nothing(seen: Seen) -> Edit:
  """The edit that changes nothing."""
  experiment, model = seen.experiment, seen.model
  config = experiment.model.config
  layers = dict.fromkeys(experiment.model.sites, config.num_decoder_layers)
  if "encoder" in layers:
    layers["encoder"] = config.num_encoder_layers
  size = lambda n: (n, config.num_heads)
  count, rows = seen.batch.inputs.shape
  sources = 0 if seen.batch.source is None else seen.batch.source.shape[1]
  return Edit(
    {s: np.ones(size(n), np.float32) for s, n in layers.items() if n},
    {s: np.asarray(x.valid) for s, x in model.scaffold.items() if x.lined},
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


# How.


def _mean(seen: Seen, edit: Edit, **where) -> Mean:
  """Exact match, and how often each output is right."""
  right, exact, _ = _run(seen, edit)
  count = seen.count
  scored = np.asarray(seen.at.weight)[:count] > 0
  told = np.asarray(right)[:count][scored].reshape(count, -1)
  return Mean(
    int(np.asarray(exact)[:count].sum()),
    count,
    by_position=told.sum(axis=0),
    success=True,
    **where,
  )


def _run(seen: Seen, edit: Edit):
  own = seen.model
  args = seen.experiment, own.params, own.scaffold, seen.batch, edit
  return _hits(*args, own.open_heads)


@partial(jax.jit, static_argnums=(0, 5))
def _hits(experiment, params, scaffold, batch, edit: Edit, open_heads):
  """experiment.hits under an edit, and the residuals of `places` that it met:
  one program for all edits."""
  own = {
    site: x._replace(valid=edit.valid[site]) if site in edit.valid else x
    for site, x in scaffold.items()
  }
  met = {}
  with nn.intercept_methods(partial(_edited, places(experiment), edit, met)):
    right, exact = experiment.hits(
      params, own, batch, experiment.task.name, open_heads=open_heads
    )
  return right, exact, [met[n] for n in range(len(met))]


def _edited(order, edit: Edit, met: dict, call, args, kwargs, context):
  """Calls a method of a module, as flax's interceptors do, and changes what the
  edit is about; residuals met are kept."""
  path, method = context.module.path, context.method_name
  if path[-1:] == ("out",):
    stack, _, layer = path[0].partition("_")
    site = "encoder" if stack == "encoder" else path[1].partition("_")[0]
    factors = edit.heads[site][int(layer)][:, None, None]
    (context_BxHxTxK,) = args
    args = (context_BxHxTxK * factors.astype(context_BxHxTxK.dtype),)
  found = call(*args, **kwargs)
  place = _place(path, method, args)
  if place not in order:
    return found
  number = order.index(place)
  here = jnp.arange(found.shape[1]) == edit.row
  here &= edit.place == number
  met[number] = jnp.where(here[:, None], edit.donors[number], found)
  return met[number]


def _place(path, method: str, args):
  """Which of `places` a method of a module returns; None if it is none."""
  if method == "embed" and not path:
    return {"self": "inputs", "cross": "source"}[args[2]], None
  if method == "residual" and path[0].startswith("decoder_"):
    return args[0], int(path[0].rpartition("_")[2])
  return None
