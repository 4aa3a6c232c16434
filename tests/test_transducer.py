"""A task as an automaton: its table, the contexts that occur, their inputs."""

import itertools
from typing import NamedTuple

import numpy as np
import plain_tasks as plain
import pytest

from lengthgen_jax.certify.transducer import Contexts, Gap, Place, Transducer
from lengthgen_jax.tasks import TASKS

# Live places for which all inputs are few.
LIVE = {"successor": 4, "addition": 2, "multiply": 3, "parity": 9}
LIVE |= {"dyck": 9}  # whose outputs are no items


class Counter(NamedTuple):
  """Not of the package: after one place, its state goes round whatever is
  read."""

  base: int = 2
  operands: int = 1
  shared_operands: tuple = ()
  states: tuple = (0, 1, 2, 3)
  initial_state: int = 0
  end: int | None = None

  def step(self, state, symbols):
    return state % 3 + 1, (state + symbols[0]) % 2


def said(name: str, items):
  """Outputs [N, n] for digits [N, O, n], by integers; n is at most 12."""
  if name == "parity":
    return np.cumsum(items[:, 0], axis=1) % 2
  if name == "dyck":
    names = TASKS[name]().token_names
    words = [plain.depths(["()"[x] for x in own]) for own in items[:, 0]]
    return np.array([[names.index(word) for word in own] for own in words])
  powers = 10 ** np.arange(items.shape[-1], dtype=np.int64)
  values = (items * powers).sum(axis=-1)
  if name == "successor":
    total = values[:, 0] + 1
  elif name == "addition":
    total = values[:, 0] + values[:, 1]
  else:
    total = values[:, 0] * items[:, 1, 0]
  return total[:, None] // powers % 10


def every_input(transducer: Transducer, live: int, zeros: int):
  """Digits [N, O, live + zeros] of all inputs."""
  task, long = transducer.task, len(transducer.long)
  digits = np.indices((task.base,) * (live * long)).reshape(live * long, -1).T
  items = np.zeros((len(digits), task.operands, live + zeros), int)
  items[:, transducer.long, :live] = digits.reshape(-1, long, live)
  if transducer.shared:
    items = np.repeat(items, 10, axis=0)
    items[:, transducer.shared[0], 0] = np.arange(len(items)) % 10
  return items


def columns(transducer: Transducer, steps, items, outputs):
  """What inputs have in the columns of steps: [N, columns]."""
  found = [items[:, operand, 0] for operand in transducer.shared]
  now = 0
  for step in steps:
    if isinstance(step, Gap):
      now += step.nonzero_places + step.padding
      continue
    found += [items[:, operand, now] for operand in step.operands]
    found += [outputs[:, now]] * step.has_output
    now += 1
  return np.stack(found, axis=1) if found else np.zeros((len(items), 0), int)


def random_steps(rng, transducer: Transducer, live: int, zeros: int):
  """Steps over all places, some of which are looked at."""
  steps, unseen = [], [0, 0]
  for place in range(live + zeros):
    reads = tuple(o for o in transducer.long if rng.random() < 0.4)
    says = bool(rng.random() < 0.4)
    if reads or says:
      if any(unseen):
        steps.append(Gap(*unseen))
      steps.append(Place(reads, says, place >= live))
      unseen = [0, 0]
    else:
      unseen[place >= live] += 1
  return steps


def listed(contexts: Contexts, size: int):
  chunks = list(contexts.chunks(size))
  assert all(len(own) == size for own in chunks[:-1])
  assert all(0 < len(own) <= size for own in chunks)
  return np.concatenate(chunks)


def whole(context) -> set:
  return set(map(tuple, np.asarray(context).tolist()))


@pytest.mark.parametrize("name", LIVE)
def test_the_table_says_what_integers_say(name):
  transducer, rng = Transducer(TASKS[name]()), np.random.default_rng(0)
  items = rng.integers(
    0, transducer.task.base, (200, transducer.task.operands, 12)
  )
  items[::3] = (items[::3] > 0) * (transducer.task.base - 1)  # long carries
  if transducer.shared:
    items[:, transducer.shared[0], 1:] = 0
  items[:, transducer.long, -1] = 0
  for own, outputs in zip(items, said(name, items), strict=True):
    (state,) = transducer.initial_states(
      own[transducer.shared[0], 0] if transducer.shared else 0
    )
    for place, output in enumerate(outputs):
      moves = {digits: rest for digits, *rest in transducer.table[state]}
      assert len(moves) == transducer.task.base ** len(transducer.long)
      found, state = moves[tuple(own[transducer.long, place].tolist())]
      assert found == output


@pytest.mark.parametrize("name", LIVE)
def test_contexts_are_exactly_those_that_occur(name):
  transducer, rng, live = (
    Transducer(TASKS[name]()),
    np.random.default_rng(1),
    LIVE[name],
  )
  items = every_input(transducer, live, 2)
  outputs = said(name, items)
  met = set()
  for _ in range(12):
    steps = random_steps(rng, transducer, live, 2)
    met |= {type(step) for step in steps}
    contexts = Contexts(transducer, steps)
    wanted = whole(columns(transducer, steps, items, outputs))
    found = listed(contexts, 1 << 20)
    assert found.dtype == np.uint8 and found.shape[1] == len(contexts.columns)
    assert len(found) == contexts.count == len(wanted)
    assert whole(found) == wanted
    # In an order that is one whatever comes at once.
    for size in (1, 7, 1000) if len(found) < 300 else (999,):
      np.testing.assert_array_equal(listed(contexts, size), found)
  assert met == {Gap, Place}


def after_gap(transducer: Transducer, state, live: int, zeros: int) -> set:
  """States after all digits that a gap could hold."""
  own = itertools.product(
    range(transducer.task.base), repeat=len(transducer.long)
  )
  nothing = [(0,) * len(transducer.long)]
  states = {state}
  for choices in [list(own)] * live + [nothing] * zeros:
    reached = set()
    for (shared, now), digits in itertools.product(states, choices):
      symbols = [shared] * transducer.task.operands
      for operand, digit in zip(transducer.long, digits, strict=True):
        symbols[operand] = digit
      reached.add((shared, int(transducer.task.step(now, symbols)[0])))
    states = reached
  return states


@pytest.mark.parametrize("name", (*LIVE, "counter"))
def test_a_shortened_gap_does_the_same(name):
  transducer = Transducer(Counter() if name == "counter" else TASKS[name]())
  first, period = transducer.preperiod, transducer.period
  if name == "counter":
    assert (first, period) == (1, 3)
  states = list(transducer.table)[:: 1 if len(transducer.table) < 9 else 7]
  for live, zeros in itertools.product((0, 1, 2, 3, 4, 5, 9), (0, 2)):
    short = transducer.shorten(Gap(live, zeros))
    assert short.padding == zeros and short.nonzero_places <= live
    assert short.nonzero_places < first + period
    for state in states:
      wanted = after_gap(transducer, state, live, zeros)
      for skip in (Gap(live, zeros), short):
        assert transducer.moves({state}, skip) == [((), wanted)]
  if first:  # no shorter gap would do
    short, long = (
      [after_gap(transducer, state, live, 0) for state in transducer.table]
      for live in (first - 1, first - 1 + period)
    )
    assert short != long


def asked(transducer: Transducer, steps, context):
  """(shared digit, digits, outputs) of a context, for `find_input`."""
  values, now = list(map(int, context)), 0
  shared = values.pop(0) if transducer.shared else 0
  digits, outputs = {}, {}
  for step in steps:
    if isinstance(step, Gap):
      now += step.nonzero_places + step.padding
      continue
    for operand in step.operands:
      digits[operand, now] = values.pop(0)
    if step.has_output:
      outputs[now] = values.pop(0)
    now += 1
  assert not values
  return shared, digits, outputs


@pytest.mark.parametrize("name", LIVE)
@pytest.mark.parametrize("drawn", (False, True))
def test_a_realized_input_has_the_context(name, drawn):
  transducer, rng = Transducer(TASKS[name]()), np.random.default_rng(2)
  live, size = LIVE[name] + 1, LIVE[name] + 3
  for _ in range(6):
    steps = random_steps(rng, transducer, live, 2)
    contexts = listed(Contexts(transducer, steps), 1 << 20)
    some = contexts[rng.integers(0, len(contexts), 12)]
    found = np.stack(
      [
        transducer.find_input(
          *asked(transducer, steps, own), size, live, rng if drawn else None
        )
        for own in some
      ]
    )
    assert found.shape[1:] == (transducer.task.operands, size)
    assert not found[:, transducer.long, live:].any()
    assert found.min() >= 0 and found.max() < transducer.task.base
    if transducer.shared:
      assert not found[:, transducer.shared[0], 1:].any()
    outputs = said(name, found)
    np.testing.assert_array_equal(
      columns(transducer, steps, found, outputs), some
    )


def test_inputs_are_drawn_by_a_generator_alone():
  transducer = Transducer(TASKS["addition"]())
  steps = [Gap(3, 0), Place((0,), True, False)]
  wanted = asked(transducer, steps, (4, 5))
  draw = lambda rng: transducer.find_input(*wanted, 6, 4, rng).tolist()
  assert draw(None) == draw(None)
  generators = [np.random.default_rng(seed) for seed in (0, 0, 1)]
  one, same, other = ([draw(g) for _ in range(8)] for g in generators)
  assert one == same != other
  assert len(set(map(str, one))) > 4
  # Both digits lead to 5: 4 + 1 and, with a carry, 4 + 0.
  assert {own[1][3] for own in one + other} == {0, 1}


def test_there_is_no_input_of_a_context_that_cannot_be():
  find = Transducer(TASKS["addition"]()).find_input
  assert find(0, {(0, 0): 1, (1, 0): 2}, {0: 4}, 3, 1) is None
  # Nothing is carried into the first place; padding is zero.
  assert find(0, {(0, 0): 1, (1, 0): 2}, {0: 3}, 3, 1) is not None
  assert find(0, {(0, 2): 1}, {}, 3, 2) is None
  assert find(0, {(0, 2): 1}, {}, 3, 3) is not None
