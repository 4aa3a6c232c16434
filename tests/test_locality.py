"""What a row is said to depend on: nothing else matters, at any width."""

import functools
from typing import NamedTuple

import jax
import numpy as np
import pytest
import untrained
from plain_lines import one_seed, random_lines

from lengthgen_jax.attention.biases.window import Line, shared_lines
from lengthgen_jax.attention.lines import ANY, LEFT, WHOLE
from lengthgen_jax.config.build import make_scaffold
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.interpret import certificate, locality
from lengthgen_jax.interpret.layout import layout
from lengthgen_jax.interpret.tape import Tape

WIDTHS, BOUND = (4, 7, 13), 14
BATCH = 28  # two inputs for every row of the widest
FORMS = [
  (task, kind, aligned)
  for task in ("addition", "multiply")
  for kind in ("encoder_decoder", "decoder_only")
  for aligned in (False, True)
]


class Case(NamedTuple):
  """A model that nobody trained, its lines and what its rows depend on."""

  built: Experiment
  scaffold: dict
  params: dict
  tape: Tape
  views: dict
  at: dict  # (width, row) -> (View, Example)

  @property
  def last(self) -> int:
    return max(width for width, _ in self.at)


@functools.cache
def model(task, kind, aligned, layers=2, encoder=0, positions=()):
  """(experiment, parameters) of a task in one of its forms."""
  fields = {
    "arithmetic.aligned": aligned,
    "model.num_decoder_layers": layers,
    "model.num_encoder_layers": encoder,
    "positions.kind": "none",
  }
  built = untrained.experiment(task, kind, fields | dict(positions))
  return built, untrained.params(built)


def case(built, params, scaffold) -> Case:
  tape = Tape(built.task)
  views = locality.views(built, scaffold, tape)
  at = {e[:2]: (own, e) for own, rows in views.items() for e in rows}
  return Case(built, scaffold, params, tape, views, at)


def some_lines(built, seed: int) -> dict:
  """Random lines by site, other ones for every layer and head: verticals,
  diagonals and anti-diagonals as steep as the task's digits."""
  target, config = built.task.target, built.model.config
  operands, rng = list(range(target)), np.random.default_rng(seed)
  layers = {"self": config.num_decoder_layers, "cross": 2}
  layers["encoder"] = config.num_encoder_layers
  scaffold = {}
  for site in built.model.sites:
    if not layers[site]:
      continue
    own = site == "self"
    read = operands * (not own or built.kind == "decoder_only")
    names = [*read, WHOLE, *[target] * own]
    ends = (*read, *[WHOLE] * (not own))
    shape = (1, layers[site], config.num_heads, 2)
    rows = (ANY,) if site == "encoder" else (ANY, target)
    found = random_lines(seed, shape, 1, names, ends, rows)
    step = max((1, *built.task.strides)) if site == "cross" else 1
    found.matrix[:] = step * rng.integers(-1, 2, found.matrix.shape)
    found.intercept[:] = rng.integers(-2, 3, found.intercept.shape)
    scaffold[site] = one_seed(found)
  return scaffold


@functools.cache
def random_case(task, kind, aligned) -> Case:
  """With an encoder, where there may be one and prompts are not aligned."""
  encoder = int(kind == "encoder_decoder" and not aligned)
  built, params = model(task, kind, aligned, 2, encoder)
  return case(built, params, some_lines(built, 5))


@functools.cache
def cyclic_case() -> Case:
  """Interleaved operands, indices mod 3, and a state of row 0 that the second
  layer reads."""
  positions = {
    "positions.kind": "sinusoidal",
    "positions.cyclic_period": 3,
    "positions.source_anchor": "right",
  }
  fields = positions | {
    "bias.kind": "window",
    "model.num_encoder_layers": 0,
    "arithmetic.aligned": True,
  }
  config = untrained.config("addition", "encoder_decoder", fields)
  built, params = model(
    "addition", "encoder_decoder", True, 2, 0, tuple(positions.items())
  )
  window = one_seed(make_scaffold(config, built)["cross"])
  rows = [Line(WHOLE, LEFT, 1, 0), Line(WHOLE, LEFT, 1, -1)]
  first = one_seed(shared_lines([rows[1]] * 2, 2))
  later = one_seed(shared_lines([rows[0], Line(WHOLE, LEFT, 0, 0)], 2))
  join = lambda *own: np.concatenate(own)
  own = type(first)(*map(join, first, later))
  return case(built, params, {"self": own, "cross": window})


CASES = {
  "-".join([task, kind, *["aligned"] * aligned]): functools.partial(
    random_case, task, kind, aligned
  )
  for task, kind, aligned in FORMS
} | {"cyclic": cyclic_case}
by_case = pytest.mark.parametrize("name", CASES)


@jax.jit
def _nothing():
  return 0


@functools.cache
def dense_of(built):
  head = built.task.name
  apply = lambda *a: built.apply(*a, head)[0]
  return jax.jit(apply)


def inputs_at(own: Case, width: int, seed=0, count=BATCH):
  """(digits, batch) of random inputs of a width."""
  rng = np.random.default_rng(seed)
  items = certificate._random_inputs(rng, own.built, count, width)
  dense = certificate.Dense(own.built, own.scaffold, own.params, BOUND)
  dense._apply = lambda batch: 0
  return items, dense(items, width)[0]


def claimed(own: Case, at, row: int) -> dict:
  """[L] bool by stack: inputs that a row is said to depend on."""
  view, example = own.at[at.width, row]
  place = lambda t: example.places[t.place] if t.place >= 0 else -1
  keys = {
    (stack, t.kind, t.which, place(t))
    for stack, tokens in view.tokens
    for t in tokens
  }
  return {
    stack: np.array([(stack, *token.key) in keys for token in tokens])
    for stack, tokens in at.tokens.items()
  }


def claims(own: Case, width: int, count=BATCH):
  """(row of each example of a batch, what it depends on [B, L] by stack)."""
  at = layout(own.built, own.scaffold, width, BOUND)
  rows = [at.rows[i % len(at.rows)][0] for i in range(count)]
  found = [claimed(own, at, row) for row in rows]
  return np.array(rows), {
    stack: np.stack([x[stack] for x in found]) for stack in at.tokens
  }


STACKS = {"decoder": "inputs", "encoder": "source"}


@by_case
def test_no_other_token_changes_a_bit(name):
  own, rng = CASES[name](), np.random.default_rng(0)
  apply = dense_of(own.built)
  for width in WIDTHS:
    _, batch = inputs_at(own, width)
    rows, near = claims(own, width)
    changed, far = {}, 0
    for stack, inside in near.items():
      ids = np.asarray(getattr(batch, STACKS[stack]))
      other = (ids + rng.integers(1, 15, ids.shape)) % 15
      changed[STACKS[stack]] = np.where(inside, ids, other)
      far += (~inside).sum()
    assert far > BATCH
    pick = lambda x, rows=rows: np.asarray(x)[np.arange(BATCH), rows]
    before, after, moved = (
      pick(apply(own.params, own.scaffold, batch._replace(**inputs)))
      for inputs in (
        {},
        changed,
        {n: (np.asarray(x) + 1) % 15 for n, x in changed.items()},
      )
    )
    np.testing.assert_array_equal(before, after)
    assert np.isfinite(before).all() and (before != moved).any()
