"""A task as an automaton: its table, the contexts that occur, their inputs."""

import itertools
from typing import NamedTuple

import numpy as np
import plain_tasks as plain
import pytest

from lengthgen_jax.certify.transducer import Contexts, Gap, Place, Transducer
from lengthgen_jax.tasks import TASKS

# Nonzero places for which all inputs are few.
PLACES = {"successor": 4, "addition": 2, "multiply": 3, "parity": 9}
PLACES |= {"dyck": 9}  # whose outputs are no items
PLACES |= {"increment": 4}  # whose digits are tokens from 1 on
by_task = pytest.mark.parametrize("name", PLACES)


class Counter(NamedTuple):
  """Not of the package: after one place, its state goes round whatever is
  read."""

  base: int = 2
  operands: int = 1
  shared_operands: tuple = ()
  states: tuple = (0, 1, 2, 3)
  initial_state: int = 0
  first_item: int = 0
  end: int | None = None

  def step(self, state, symbols):
    return state % 3 + 1, (state + symbols[0]) % 2


def outputs_of(name: str, items):
  """Outputs [N, n] for digits [N, O, n], by integers; n is at most 12."""
  if name == "parity":
    return np.cumsum(items[:, 0], axis=1) % 2
  if name == "dyck":
    names = TASKS[name]().token_names
    words = [plain.depths(["()"[x] for x in digits]) for digits in items[:, 0]]
    return np.array([[names.index(x) for x in word] for word in words])
  powers = 10 ** np.arange(items.shape[-1], dtype=np.int64)
  zero = TASKS[name].first_item
  values = ((items - zero) * powers).sum(axis=-1)
  totals = {
    "increment": lambda: values[:, 0] + 1,
    "successor": lambda: values[:, 0] + 1,
    "addition": lambda: values[:, 0] + values[:, 1],
    "multiply": lambda: values[:, 0] * items[:, 1, 0],
  }
  return totals[name]()[:, None] // powers % 10 + zero


def every_input(transducer: Transducer, places: int, padding: int):
  """Digits [N, O, places + padding] of all inputs."""
  task, long = transducer.task, len(transducer.long)
  count = places * long
  digits = np.indices((task.base,) * count).reshape(count, -1).T
  items = np.zeros((len(digits), task.operands, places + padding), int)
  items[:, transducer.long, :places] = digits.reshape(-1, long, places)
  if transducer.shared:
    items = np.repeat(items, 10, axis=0)
    items[:, transducer.shared[0], 0] = np.arange(len(items)) % 10
  return items + task.first_item


def place_of_each_column(transducer: Transducer, steps) -> list[tuple]:
  """("digit" or "output", operand, place) of every column of steps."""
  columns, place = [("digit", k, 0) for k in transducer.shared], 0
  for step in steps:
    if isinstance(step, Gap):
      place += step.nonzero_places + step.padding
      continue
    columns += [("digit", operand, place) for operand in step.operands]
    columns += [("output", 0, place)] * step.has_output
    place += 1
  return columns


def contexts_of(transducer: Transducer, steps, items, outputs):
  """What inputs have in the columns of steps: [N, columns]."""
  contexts = [
    outputs[:, place] if kind == "output" else items[:, operand, place]
    for kind, operand, place in place_of_each_column(transducer, steps)
  ]
  return np.array(contexts, int).reshape(len(contexts), len(items)).T


def random_steps(rng, transducer: Transducer, places: int, padding: int):
  """Steps over all places, some of which are looked at."""
  steps, unseen = [], [0, 0]
  for place in range(places + padding):
    operands = tuple(o for o in transducer.long if rng.random() < 0.4)
    has_output = bool(rng.random() < 0.4)
    if operands or has_output:
      if any(unseen):
        steps.append(Gap(*unseen))
      steps.append(Place(operands, has_output, place >= places))
      unseen = [0, 0]
    else:
      unseen[place >= places] += 1
  return steps


def listed(contexts: Contexts, size: int):
  chunks = list(contexts.chunks(size))
  assert all(len(chunk) == size for chunk in chunks[:-1])
  assert all(0 < len(chunk) <= size for chunk in chunks)
  return np.concatenate(chunks)


@by_task
def test_contexts_are_exactly_those_that_occur(name):
  transducer, rng = Transducer(TASKS[name]()), np.random.default_rng(1)
  items = every_input(transducer, PLACES[name], 2)
  outputs = outputs_of(name, items)
  kinds = set()
  for _ in range(12):
    steps = random_steps(rng, transducer, PLACES[name], 2)
    kinds |= {type(step) for step in steps}
    contexts = Contexts(transducer, steps)
    occurring = contexts_of(transducer, steps, items, outputs)
    expected = np.unique(occurring, axis=0)
    every = listed(contexts, 1 << 20)
    assert every.dtype == np.uint8
    assert len(every) == contexts.count == len(expected)
    assert every.shape[1] == len(contexts.columns) == expected.shape[1]
    np.testing.assert_array_equal(np.unique(every, axis=0), expected)
    # In an order that is one whatever comes at once.
    for size in (1, 7, 1000) if len(every) < 300 else (999,):
      np.testing.assert_array_equal(listed(contexts, size), every)
  assert kinds == {Gap, Place}


def after_gap(transducer: Transducer, state, places: int, padding: int) -> set:
  """States after all digits that a gap could hold."""
  task, long = transducer.task, transducer.long
  zero = task.first_item
  digits = range(zero, zero + task.base)
  every = list(itertools.product(digits, repeat=len(long)))
  zeros = [(zero,) * len(long)]
  states = {state}
  for choices in [every] * places + [zeros] * padding:
    states_after = set()
    for (shared, current), digits in itertools.product(states, choices):
      symbols = [shared] * task.operands
      for operand, digit in zip(long, digits, strict=True):
        symbols[operand] = digit
      states_after.add((shared, int(task.step(current, symbols)[0])))
    states = states_after
  return states


@pytest.mark.parametrize("name", (*PLACES, "counter"))
def test_a_shortened_gap_does_the_same(name):
  transducer = Transducer(Counter() if name == "counter" else TASKS[name]())
  preperiod, period = transducer.preperiod, transducer.period
  if name == "counter":
    assert (preperiod, period) == (1, 3)
  states = list(transducer.table)[:: 1 if len(transducer.table) < 9 else 7]
  for places, padding in itertools.product((0, 1, 2, 3, 4, 5, 9), (0, 2)):
    gap = Gap(places, padding)
    short = transducer.shorten(gap)
    assert short.padding == padding and short.nonzero_places <= places
    assert short.nonzero_places < preperiod + period
    for state in states:
      expected = [((), after_gap(transducer, state, places, padding))]
      for step in (gap, short):
        assert transducer.moves({state}, step) == expected
  if preperiod:  # no shorter gap would do
    short, long = (
      [after_gap(transducer, state, places, 0) for state in transducer.table]
      for places in (preperiod - 1, preperiod - 1 + period)
    )
    assert short != long


def find_input(transducer: Transducer, steps, context, *args):
  """Digits [O, places] of an input with a context, or None."""
  shared, digits, outputs = 0, {}, {}
  columns = place_of_each_column(transducer, steps)
  for (kind, operand, place), value in zip(columns, context, strict=True):
    if kind == "output":
      outputs[place] = int(value)
    elif operand in transducer.shared:
      shared = int(value)
    else:
      digits[operand, place] = int(value)
  return transducer.find_input(shared, digits, outputs, *args)


@by_task
@pytest.mark.parametrize("is_random", (False, True))
def test_an_input_that_is_found_has_the_context(name, is_random):
  transducer, rng = Transducer(TASKS[name]()), np.random.default_rng(2)
  places = PLACES[name] + 1
  for _ in range(6):
    steps = random_steps(rng, transducer, places, 2)
    contexts = listed(Contexts(transducer, steps), 1 << 20)
    contexts = contexts[rng.integers(0, len(contexts), 12)]
    args = places + 2, places, rng if is_random else None
    items = np.stack(
      [find_input(transducer, steps, x, *args) for x in contexts]
    )
    assert items.shape[1:] == (transducer.task.operands, places + 2)
    zero = transducer.task.first_item
    assert (items[:, transducer.long, places:] == zero).all()
    assert items.min() >= zero and items.max() < zero + transducer.task.base
    for operand in transducer.shared:
      assert not items[:, operand, 1:].any()
    outputs = outputs_of(name, items)
    np.testing.assert_array_equal(
      contexts_of(transducer, steps, items, outputs), contexts
    )


def test_there_is_no_input_of_a_context_that_cannot_be():
  find = Transducer(TASKS["addition"]()).find_input
  assert find(0, {(0, 0): 1, (1, 0): 2}, {0: 4}, 3, 1) is None
  # Nothing is carried into the first place; padding is zero.
  assert find(0, {(0, 0): 1, (1, 0): 2}, {0: 3}, 3, 1) is not None
  assert find(0, {(0, 2): 1}, {}, 3, 2) is None
  assert find(0, {(0, 2): 1}, {}, 3, 3) is not None
