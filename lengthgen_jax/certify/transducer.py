"""This module finds out which digits and outputs can occur together.

A task states itself as a transducer: an automaton that reads the digits (or
items) of all operands at one place after another, numbers from the least
significant digit on, and writes an output at each place. The logits of a row
depend on the digits and outputs of a few places. These, with the place of what
the row must say, are its *neighborhood*: a tuple of steps from the first place
on, each of which is one of these places (a Place) or a run of others (a Gap). A
*context* is one choice of values for the digits and outputs of a neighborhood;
its contexts are all choices that occur in some input. They are found by running
the transducer over sets of states (the subset construction).
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check

VALUES = 256  # the most values of a column: contexts are arrays of bytes

State = tuple[int, int]  # the shared digit, and the state of the task
# A function of the state of a task and the digits of the long operands, which
# are those that have a digit at every place.
Condition = Callable[[int, tuple[int, ...]], bool]
# (kind, operand, number of the place): see Transducer.columns.
Key = tuple[str, int, int]


class TransducerTask(Protocol):
  """What a transducer needs of a task; see tasks.task.Task."""

  operands: int
  base: int

  @property
  def first_item(self) -> int: ...

  @property
  def end(self) -> int | None: ...

  @property
  def shared_operands(self) -> tuple[int, ...]: ...

  @property
  def states(self) -> Sequence[int]: ...

  @property
  def initial_state(self) -> int: ...

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple: ...


class Gap(NamedTuple):
  """A run of places that a neighborhood does not look at.

  Attributes:
    nonzero_places: how many places may hold any digit.
    padding: how many places of padding follow these; they hold zeros, or no
      digit at all.
  """

  nonzero_places: int
  padding: int


class Place(NamedTuple):
  """A place that a neighborhood looks at.

  Attributes:
    operands: the operands whose digits are columns of the contexts.
    has_output: whether the output is a column too.
    is_padding: whether the place is padding, where every digit is zero.
  """

  operands: tuple[int, ...]
  has_output: bool
  is_padding: bool


Step = Gap | Place


class Moves(NamedTuple):
  """All moves of a transducer whose states have one shared digit.

  Shapes: S states, M choices of digits of the long operands.

  Attributes:
    states: [S], the states of the task.
    symbols: [M, long operands], the digits.
    outputs: [S, M], what is written.
    next_states: [S, M], the number of the state after.
    is_readable, is_padding: [S, M], whether the digits can follow the state,
      and whether they can be padding after it.
  """

  states: np.ndarray
  symbols: np.ndarray
  outputs: np.ndarray
  next_states: np.ndarray
  is_readable: np.ndarray
  is_padding: np.ndarray


class Transducer:
  """The transducer of a task, over sets of states.

  A state is a pair: the digit that all places share (N×1's single digit; 0 in
  other tasks), and the state of the task. Sets are frozensets.

  Attributes:
    task, can_read, can_pad: the arguments of the constructor.
    digits: all digits or items of the task, the zero first.
    shared: the operands of a single digit, which all places share; at most one.
    long: the other operands.
    shared_values: what the shared digit may be; (0,) without one.
    table: {state: [(digits of the long operands, output, next state)]}.
    moves_of: {shared digit: the same as Moves}.
    values: one more than the largest digit or output.
    preperiod, period: after `preperiod` or more unseen places, `period` more of
      them lead to the same sets of states.
  """

  def __init__(
    self,
    task: TransducerTask,
    can_read: Condition = lambda state, digits: True,
    can_pad: Condition | None = None,
  ):
    """Tabulates the transducer of a task.

    Args:
      task: the task.
      can_read: whether given digits of the long operands can follow a state of
        the task.
      can_pad: whether they can be padding after a state; by default, whether
        all of them are zeros.

    Raises:
      UsageError: the task has more digits and outputs than a byte can hold.
    """
    zero = task.first_item
    self.digits = range(zero, zero + task.base)
    self.task, self.can_read = task, can_read
    self.can_pad = can_pad or (lambda _, digits: set(digits) <= {zero})
    self.shared = task.shared_operands
    self.long = [i for i in range(task.operands) if i not in self.shared]
    self.shared_values = self.digits if self.shared else (0,)
    self.moves_of = {
      shared: self._moves(shared) for shared in self.shared_values
    }
    self.table = self._table()
    largest = max(
      output for moves in self.table.values() for _, output, _ in moves
    )
    self.values = 1 + max(largest, self.digits[-1])
    check(
      self.values <= VALUES,
      f"certify: {type(task).__name__} has {self.values} digits and outputs,"
      f" but a context tells at most {VALUES} apart",
    )
    self.preperiod, self.period = self._find_period()

  def initial_states(self, shared: int) -> frozenset[State]:
    """Returns the set of states before the first place, given the shared digit
    (0 without one)."""
    return frozenset({(shared, self.task.initial_state)})

  def _moves(self, shared: int) -> Moves:
    """Returns the Moves of the states with a shared digit."""
    states = np.array(self.task.states)
    digits = list(itertools.product(self.digits, repeat=len(self.long)))
    # All pairs of a state and digits in one step, of arrays.
    now = np.repeat(states, len(digits))
    symbols = [np.full(len(now), shared)] * self.task.operands
    for operand, values in zip(self.long, np.array(digits).T, strict=True):
      symbols[operand] = np.tile(values, len(states))
    next_states, outputs = (
      np.asarray(x).reshape(len(states), len(digits))
      for x in self.task.step(now, symbols)
    )
    numbers = {state: number for number, state in enumerate(states.tolist())}
    holds = lambda condition: np.array(
      [[condition(state, read) for read in digits] for state in numbers]
    )
    return Moves(
      states,
      np.array(digits),
      outputs,
      np.vectorize(numbers.__getitem__)(next_states),
      holds(self.can_read),
      holds(self.can_pad),
    )

  def _table(self) -> dict[State, list]:
    """Returns the attribute `table`."""
    table = {}
    for shared, moves in self.moves_of.items():
      states, symbols = (
        moves.states.tolist(),
        list(map(tuple, moves.symbols.tolist())),
      )
      for i, state in enumerate(states):
        table[shared, state] = [
          (
            symbols[k],
            int(moves.outputs[i, k]),
            (shared, states[moves.next_states[i, k]]),
          )
          for k in np.flatnonzero(moves.is_readable[i])
        ]
    return table

  def columns(self, steps: Sequence[Step]) -> dict[Key, int]:
    """Returns which column of a neighborhood's contexts holds which value.

    The result is {key: column}. A key is ("digit", operand, number of the
    place) or ("output", 0, number of the place). Only the places that the
    neighborhood looks at are numbered, from 0 on; the number is -1 for a digit
    that all places share.
    """
    keys = [("digit", operand, -1) for operand in self.shared]
    places = [step for step in steps if isinstance(step, Place)]
    for number, place in enumerate(places):
      keys += [("digit", operand, number) for operand in place.operands]
      if place.has_output:
        keys.append(("output", 0, number))
    return {key: column for column, key in enumerate(keys)}

  def moves(
    self, states: frozenset[State], step: Step
  ) -> list[tuple[tuple[int, ...], frozenset[State]]]:
    """Returns [(values of the step's columns, set of states after it)] for a
    set of states before it, ascending; [] where nothing can follow."""
    if isinstance(step, Gap):
      for i in range(step.nonzero_places + step.padding):
        states = frozenset(
          next_state
          for state in states
          for digits, _, next_state in self.table[state]
          if i < step.nonzero_places or self.can_pad(state[1], digits)
        )
      return [((), states)] if states else []
    states_after = {}
    for state in states:
      for digits, output, next_state in self.table[state]:
        if step.is_padding and not self.can_pad(state[1], digits):
          continue
        values = tuple(
          digit
          for operand, digit in zip(self.long, digits, strict=True)
          if operand in step.operands
        )
        values += (output,) if step.has_output else ()
        states_after.setdefault(values, set()).add(next_state)
    return [
      (values, frozenset(states_after[values]))
      for values in sorted(states_after)
    ]

  def _find_period(self) -> tuple[int, int]:
    """Returns the attributes `preperiod` and `period`."""
    current, visited = [frozenset({state}) for state in self.table], []
    while current not in visited:
      visited.append(current)
      current = [self.moves(states, Gap(1, 0))[0][1] for states in current]
    preperiod = visited.index(current)
    return preperiod, len(visited) - preperiod

  def shorten(self, gap: Gap) -> Gap:
    """Returns the shortest gap that leads to the same sets of states, with the
    same padding."""
    length = gap.nonzero_places
    if length >= self.preperiod:
      length = self.preperiod + (length - self.preperiod) % self.period
    return Gap(length, gap.padding)

  def find_input(
    self,
    shared: int,
    digits: dict[tuple[int, int], int],
    outputs: dict[int, int],
    width: int,
    nonzero_places: int,
    rng: np.random.Generator | None = None,
  ) -> np.ndarray | None:
    """Returns an input that has given digits and outputs, if there is one.

    Args:
      shared: the digit that all places share; 0 without one.
      digits: {(operand, place): digit} that the input must have.
      outputs: {place: output} that the input must lead to.
      width: how many places the input has.
      nonzero_places: how many of them may be other than zero.
      rng: chooses among such inputs; None takes the first that is found.

    Returns:
      Digits [operands, width] in the order of reading, or None. A shared digit
      is at place 0, followed by zeros.
    """
    moves = self.moves_of[shared]
    states = np.flatnonzero(moves.states == self.task.initial_state)
    # For every place, by the state after it, the state before and the number of
    # the symbols that lead there.
    steps = []
    for place in range(width):
      is_allowed = moves.is_readable[states]
      if place in outputs:
        is_allowed &= moves.outputs[states] == outputs[place]
      if place >= nonzero_places:
        is_allowed &= moves.is_padding[states]
      for symbols, operand in zip(moves.symbols.T, self.long, strict=True):
        if (operand, place) in digits:
          is_allowed &= symbols == digits[operand, place]
      before, read = np.nonzero(is_allowed)
      before = states[before]
      if rng is not None:
        order = np.arange(len(read))
        rng.shuffle(order)
        before, read = before[order], read[order]
      # Of the moves to a state the first one is taken: it is assigned last.
      first = np.full(len(moves.states), len(read))
      after = moves.next_states[before, read]
      first[after[::-1]] = np.arange(len(read))[::-1]
      states = np.argsort(first, kind="stable")[: (first < len(read)).sum()]
      steps.append((before, read, first))
    if not len(states):
      return None
    state = states[0]
    items = np.zeros((self.task.operands, width), np.int32)
    items[self.shared, 0] = shared
    for place, (before, read, first) in reversed([*enumerate(steps)]):
      items[self.long, place] = moves.symbols[read[first[state]]]
      state = before[first[state]]
    return items


class Contexts:
  """All contexts of a neighborhood, in ascending order, a chunk at a time.

  Attributes:
    transducer: the Transducer of the rows that have the neighborhood.
    columns: {key: column} of every value in a context; see Transducer.columns.
    count: how many contexts there are; they are all different.
  """

  def __init__(self, transducer: Transducer, steps: Sequence[Step]):
    """Runs the transducer over the neighborhood's steps."""
    self.transducer, self.columns = transducer, transducer.columns(steps)
    # Of every step, and each set of states before it: (values that the step
    # adds [choices, columns], numbers of the sets after it [choices]).
    self._moves: list[list[tuple[np.ndarray, np.ndarray]]] = []
    first = [
      ((value,) if transducer.shared else (), transducer.initial_states(value))
      for value in transducer.shared_values
    ]
    counts = self._add_step({frozenset(): 1}, lambda _: first)
    for step in steps:
      counts = self._add_step(
        counts, lambda states, step=step: transducer.moves(states, step)
      )
    self.count = sum(counts.values())

  def _add_step(
    self, counts: dict[frozenset, int], moves: Callable
  ) -> dict[frozenset, int]:
    """Tabulates the moves of a step from the sets of states before it.

    Args:
      counts: how many contexts end in each of these sets.
      moves: returns the moves from a set, as Transducer.moves does.

    Returns:
      How many contexts end in each of the sets after the step.
    """
    all_moves = [moves(states) for states in counts]  # [] where none can follow
    counts_after = {}
    for count, choices in zip(counts.values(), all_moves, strict=True):
      for _, states in choices:
        counts_after[states] = counts_after.get(states, 0) + count
    numbers = {states: number for number, states in enumerate(counts_after)}
    lengths = (len(values) for choices in all_moves for values, _ in choices)
    width = max(lengths, default=0)
    table = []
    for choices in all_moves:
      values = np.array([values for values, _ in choices], np.uint8)
      after = np.array([numbers[states] for _, states in choices], int)
      table.append((values.reshape(len(choices), width), after))
    self._moves.append(table)
    return counts_after

  def chunks(self, size: int) -> Iterator[np.ndarray]:
    """Yields all contexts in order, uint8 [`size` or fewer, columns]."""
    pending = np.zeros((0, len(self.columns)), np.uint8)
    # All contexts extend the empty one, in the only set of states there is.
    empty_context, initial_set = np.zeros((1, 0), np.uint8), np.zeros(1, int)
    for contexts in self._extend(0, empty_context, initial_set, size):
      pending = np.concatenate([pending, contexts])
      while len(pending) >= size:
        yield pending[:size]
        pending = pending[size:]
    if len(pending):
      yield pending

  def _extend(
    self, step: int, contexts: np.ndarray, sets: np.ndarray, size: int
  ) -> Iterator[np.ndarray]:
    """Yields all contexts that begin with the given values, about `size` at a
    time.

    It extends so few of them at once that the choices of one step make at most
    about `size` of them; so memory does not grow with the number of contexts.

    Args:
      step: the first step whose values are not given.
      contexts: [B, columns so far], the values of the steps before.
      sets: [B], for each context the number of the set of states after these
        steps.
      size: about how many contexts are yielded at once.
    """
    if step == len(self._moves):
      yield contexts
      return
    table = self._moves[step]
    most_choices = max((1, *(len(after) for _, after in table)))
    count = max(size // most_choices, 1)
    for start in range(0, len(contexts), count):
      part = slice(start, start + count)
      extended = _with_choices(table, contexts[part], sets[part])
      yield from self._extend(step + 1, *extended, size)


def _with_choices(table, contexts, sets) -> tuple[np.ndarray, np.ndarray]:
  """Returns contexts extended by every choice that a step has, ascending, and
  the numbers of the sets of states that they lead to.

  Args:
    table: for each set of states before the step, (values that it adds
      [choices, columns], numbers of the sets after it [choices]).
    contexts: [B, columns so far].
    sets: [B], the number of the set of states after each context.
  """
  extended, ends, parents = [], [], []
  for number in np.unique(sets):
    rows, (values, after) = np.flatnonzero(sets == number), table[number]
    repeated = np.repeat(contexts[rows], len(after), axis=0)
    added = np.tile(values, (len(rows), 1))
    extended.append(np.concatenate([repeated, added], axis=1))
    ends.append(np.tile(after, len(rows)))
    parents.append(np.repeat(rows, len(after)))
  order = np.argsort(np.concatenate(parents), kind="stable")
  return np.concatenate(extended)[order], np.concatenate(ends)[order]
