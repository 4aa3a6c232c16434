"""Models that nobody trained, whose attention follows lines."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import untrained
from plain_lines import one_seed, random_lines

from lengthgen_jax.attention.lines import (
  ANY,
  LEFT,
  RIGHT,
  WHOLE,
  Line,
  shared_lines,
)
from lengthgen_jax.certify import certificate, receptive_fields
from lengthgen_jax.certify.certificate import Tally
from lengthgen_jax.certify.receptive_fields import layout
from lengthgen_jax.certify.states import States
from lengthgen_jax.certify.transducer import Transducer
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import dataset

BOUND = 96  # static, of widths
BATCH = 28
CYCLIC = {
  "positions.kind": "sinusoidal",
  "positions.cyclic_period": 3,
  "positions.source_anchor": "right",
}


@functools.cache
def model(task, kind="encoder_decoder", aligned=False, encoder=0, more=()):
  """(experiment, parameters) of a task in one of its forms."""
  fields = {
    "arithmetic.aligned": aligned,
    "model.num_decoder_layers": 2,
    "model.num_encoder_layers": encoder,
    "positions.kind": "none",
    "model.dropout_rate": 0.1,  # of training alone
  }
  built = untrained.experiment(task, kind, fields | dict(more))
  if task == "addition" and not aligned or built.task.ragged:
    return built, untrained.params(built)
  # The same numbers, but for the name of the task's head.
  params = model("addition", kind, False, encoder, more)[1]
  return built, {n.replace("addition", task): x for n, x in params.items()}


@dataclasses.dataclass
class Case:
  """A model that nobody trained, and lines of it."""

  built: Experiment
  params: dict
  scaffold: dict

  def __post_init__(self):
    self.transducer = Transducer(self.built.task)
    sizes = receptive_fields.widths(self.built, self.scaffold, self.transducer)
    self.first, self.last = sizes[0], sizes[-1]
    assert self.last + 6 <= BOUND
    self.states = States(self.built, self.params, self.transducer, 1 << 10)
    head = self.built.task.name
    self.apply = jax.jit(lambda *own: self.built.apply(*own, head)[0])
    self.at = functools.cache(
      lambda width: layout(self.built, self.scaffold, width, BOUND)
    )

  @functools.cached_property
  def views(self) -> set:
    return {
      own
      for width in range(self.first, self.last + 1)
      for own, _ in self.rows(width).values()
    }

  def rows(self, width: int) -> dict:
    """{row: (ReceptiveField, Example)} at a width."""
    at = self.at(width)
    view = functools.partial(
      receptive_fields.view, self.built, self.transducer, at
    )
    return {row: view(row, place) for row, place in at.rows}

  def inputs(self, width: int):
    """(digits, batch) of random inputs of a width."""
    rng, task = np.random.default_rng(0), self.built.task
    items = certificate._random_inputs(rng, self.built, BATCH, width)
    parsed = [(own, [width] * task.operands) for own in items]
    batch = dataset.typed_batch(task, self.built.kind, parsed, width, BOUND)
    return items, batch

  def claims(self, width: int):
    """(row of every example of a batch, what it is said to depend on [B, L] by
    the name of the inputs)."""
    at, found, rows = self.at(width), [], self.rows(width)
    numbers = [at.rows[i % len(at.rows)][0] for i in range(BATCH)]
    for view, example in (rows[row] for row in numbers):
      place = lambda t, own=example: own.places[t.place] if t.place >= 0 else -1
      keys = {
        (stack, t.kind, t.which, place(t))
        for stack, tokens in view.tokens
        for t in tokens
      }
      found.append(
        {
          stack: np.array([(stack, *t.key) in keys for t in tokens])
          for stack, tokens in at.tokens.items()
        }
      )
    names = {"decoder": "inputs", "encoder": "source"}
    return np.array(numbers), {
      names[stack]: np.stack([own[stack] for own in found])
      for stack in at.tokens
    }


def some_lines(built, seed: int) -> dict:
  """Random lines by site, other ones for every layer and head: mostly diagonals
  as steep as the task's digits, also anti-diagonals and verticals."""
  target, config = built.task.target_segment, built.model.config
  operands, rng = list(range(target)), np.random.default_rng(seed)
  scaffold = {}
  for site in built.model.sites:
    encoder, own = site == "encoder", site == "self"
    layers = config.num_encoder_layers if encoder else 2
    if not layers:
      continue
    read = operands * (not own or built.kind == "decoder_only")
    names = [*read, *read, WHOLE, *[target] * own]
    ends = (*read, *[WHOLE] * (not own))
    count = 6 if own and read else 3
    shape = (1, layers, config.num_heads, count)
    rows = (ANY,) if encoder else (ANY, target)
    found = random_lines(seed, shape, 1, names, ends, rows)
    forward = (found.anchor == RIGHT) | ~np.isin(found.segment, operands)
    step = np.where(forward, 1, -1) * rng.choice((1, 1, 0, -1), shape)
    said = (found.row_segment == target) & np.isin(found.segment, operands)
    step *= np.where(said, max((1, *built.task.strides)), 1)
    found.matrix[:] = step[..., None, None]
    found.intercept[:] = rng.integers(-1, 2, found.intercept.shape)
    scaffold[site] = one_seed(found)
  return scaffold


# Of each head: its own row and the one before, and a digit and the next one.
HEADS = {
  "self": ([Line(WHOLE, LEFT, 1, 0)], [Line(WHOLE, LEFT, 1, -1)]),
  "cross": ([Line(0, RIGHT, 1, 0)], [Line(0, RIGHT, 1, 1)]),
}


def by_head(site: str, task):
  end = LEFT if task.anchor == "left" else RIGHT
  heads = [[line._replace(anchor=end) for line in own] for own in HEADS[site]]
  heads = HEADS[site] if site == "self" else heads
  own = [one_seed(shared_lines(lines, 1)) for lines in heads]
  join = lambda *x: np.concatenate(x, axis=1)
  return type(own[0])(*map(join, *own))


@functools.cache
def small(task: str):
  """(Model, Survey, States, Dense, Tally of every view) of a random model that
  says what might be right: digits and the end."""
  built, params = model(task, more=(("model.num_decoder_layers", 1),))
  head = f"logits_dense_{task}"
  words = np.arange(built.model.config.vocab_size)
  likely = (words < built.task.base) | (words == built.task.end)
  # And says this or that.
  own = {"kernel": 4.0 * params[head]["kernel"], "bias": 12.0 * likely}
  own = jax.tree.map(jnp.float32, own)
  params = params | {head: own}
  scaffold = {site: by_head(site, built.task) for site in HEADS}
  survey = certificate.survey(built, scaffold)
  states = States(built, params, survey.transducer, 64)
  tallies = []
  for view, contexts in zip(survey.views, survey.contexts, strict=True):
    tallies.append(Tally())
    cases = certificate.enumerate_view(states, view, contexts, tallies[-1])
    assert sum(cases) == contexts.count == tallies[-1].cases
  dense = certificate.ForwardPass(built, scaffold, params, 64)
  return Model(built, scaffold, params), survey, states, dense, tallies
