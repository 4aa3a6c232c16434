"""One width: what stands where, and which cells a model's own biases open."""

import itertools
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.tasks import data


class Token(NamedTuple):
  """What an input holds.

  Attributes:
    kind: "mark" (always the same token), "given" (a digit of an operand) or
      "said" (an output).
    which: the mark's id, the operand's number, 0.
    place: of the digit or output, -1 of a digit that all places share; in a
      view, its number among the places.
    phase: of the input's index, mod T.
  """

  kind: str
  which: int
  place: int
  phase: int

  @property
  def key(self) -> tuple:
    """Whose value it holds."""
    return self.kind, self.which, self.place


class Layout(NamedTuple):
  """One width: tokens by stack, open cells, rows to say.

  Attributes:
    width: W.
    live: how many places may be other than zero.
    tokens: Token of every input by stack.
    cells: (stack, site, layer, row) -> ((key, bias by head), ...).
    rows: (position, place) of every output, the end token's place is W.
    size: what the input is padded to: W, or (N, M) of a grid.
  """

  width: int
  live: int
  tokens: dict
  cells: dict
  rows: list
  size: int | tuple[int, int]


@partial(jax.jit, static_argnums=(0, 3))
def numbers(experiment, scaffold, width, longest):
  """A batch of one example at a width, and its dense biases."""
  task = experiment.task
  batch = data.test_batch(
    task,
    experiment.kind,
    next(iter(task.test_sets)),
    jax.random.key(0),
    np.zeros(1, np.int32),
    experiment.live(width),
    width,
    longest,
    (),
  )
  sites = experiment.sites(scaffold, batch)
  return batch, {site: bias.values[:, 0] for site, bias in sites.biases.items()}


def layout(experiment, scaffold, width: int, longest: int) -> Layout:
  """Tokens and open cells at a width, by the program's own biases."""
  found = numbers(experiment, scaffold, np.int32(width), longest)
  batch, biases = jax.tree.map(np.asarray, found)
  tokens = inputs_of(experiment, batch)
  said = np.flatnonzero(batch.weight[0] > 0)
  rows = [(int(row), int(batch.rows.left[0, row, 0])) for row in said]
  cells = opened(experiment, tokens, biases)
  return Layout(width, experiment.live(width), tokens, cells, rows, width)


def inputs_of(experiment, batch) -> dict:
  """{stack: Token of every input} of a batch whose examples are alike."""
  tokens = {"decoder": _tokens(experiment, batch.inputs, batch.keys, False)}
  if batch.source is not None:
    right = experiment.model.config.positions.source_anchor == "right"
    source = batch.source, batch.source_keys
    tokens["encoder"] = _tokens(experiment, *source, right)
  return tokens


def opened(experiment, tokens: dict, biases: dict) -> dict:
  """The cells of a Layout."""
  cells = {}
  for site, values in biases.items():
    stack = "encoder" if site == "encoder" else "decoder"
    layers = depths(experiment)[stack]
    for n in range(layers):
      bias = values[n if len(values) > 1 else 0]  # [H, T, S]
      rows, keys = np.nonzero((bias != CLOSED).any(axis=0))
      by_head = map(tuple, bias[:, rows, keys].T.tolist())
      seen = list(zip(keys.tolist(), by_head, strict=True))
      ends = np.searchsorted(rows, np.arange(len(tokens[stack]) + 1)).tolist()
      for row, (start, end) in enumerate(itertools.pairwise(ends)):
        cells[stack, site, n, row] = tuple(seen[start:end])
  return cells


def depths(experiment) -> dict:
  """Layers of every stack."""
  config = experiment.model.config
  return {
    "encoder": config.num_encoder_layers,
    "decoder": config.num_decoder_layers,
  }


def _tokens(experiment, ids, keys, from_right: bool) -> list[Token]:
  """What every input of a stack holds."""
  task = experiment.task
  period = experiment.model.config.positions.cyclic_period or 1
  index = keys.index_right()[0] if from_right else keys.index
  found = []
  for i, segment in enumerate(keys.segment[0]):
    left, right = int(keys.left[0, i, 0]), int(keys.right[0, i, 0])
    phase = int(index[i]) % period
    if segment == task.target and ids[0, i] != task.end:
      found.append(Token("said", 0, left, phase))
    elif 0 <= segment < task.target and (
      held := task.holds(int(segment), left, right)
    ):
      operand, place = held
      place = -1 if operand in task.shared else place
      found.append(Token("given", operand, place, phase))
    else:
      found.append(Token("mark", int(ids[0, i]), -1, phase))
  return found
