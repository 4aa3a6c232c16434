"""This module finds out which digits and outputs can occur together.

A task states itself as a transducer: an automaton that reads the digits of all
operands at one place after another, least significant first, and says an output
at each. The logits of a row depend on the digits and outputs of a few places,
its neighborhood: a list of steps over consecutive places, which are either
looked at (Position) or not (Gap). The *contexts* of a neighborhood are all
values that its digits and outputs can have together; they are found by running
the transducer over sets of states (the subset construction).
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lengthgen_jax.errors import check

VALUES = 256  # values of a column: contexts are arrays of bytes


class Gap(NamedTuple):
  """A gap is a run of places that the neighborhood does not look at.

  Attributes:
    nonzero_places: how many of them may hold any digit.
    zeros: how many places of padding follow them.
  """

  nonzero_places: int
  zeros: int


class Position(NamedTuple):
  """A position is a place that the neighborhood looks at.

  A context has a value, a *column*, for each digit and output looked at.

  Attributes:
    reads: the operands whose digit is a column of the contexts.
    has_output: whether the output is a column too.
    zero: whether the place is padding.
  """

  reads: tuple[int, ...]
  has_output: bool
  zero: bool


class Transducer:
  """The transducer of a task, over sets of states.

  A state is a pair of the digit that all places share (N×1's digit is drawn
  once; 0 without one) and the state of the task. Sets are frozensets.

  Attributes:
    task: the task, or anything else with `operands`, `shared`, `base`,
      `begin`, `states` and `step`.
    shared: operands of a single digit, which all places share.
    long: the other operands.
    shared_values: what the shared digit may be; (0,) without one.
    table: {state: [(digits of the long operands, output, next state)]}.
    values: one more than the largest digit or output.
    preperiod_and_period: (g, p): after g or more unseen places, p more make no
      difference.
  """

  def __init__(self, task):
    """Tabulates the transducer of a task, or of what has the same attributes.

    Raises:
      UsageError: it has more digits and outputs than a byte can hold.
    """
    self.task = task
    self.shared = task.shared_operands
    self.long = [i for i in range(task.operands) if i not in self.shared]
    self.shared_values = range(task.base) if self.shared else (0,)
    self.table = self._table()
    outputs = max(
      output for moves in self.table.values() for _, output, _ in moves
    )
    self.values = 1 + max(outputs, task.base - 1, *self.shared_values)
    check(
      self.values <= VALUES,
      f"certify: {type(task).__name__} has {self.values} digits and outputs,"
      f" of which a context tells {VALUES} apart",
    )
    self.preperiod_and_period = self._find_period()

  def possible(self, state: tuple[int, int], digits: tuple[int, ...]) -> bool:
    """Returns whether these digits can follow a state."""
    return True

  def ends(self, state: tuple[int, int], digits: tuple[int, ...]) -> bool:
    """Returns whether these digits can be padding after a state."""
    return not any(digits)

  def begin(self, shared: int) -> frozenset:
    """Returns the set of states before the first place."""
    return frozenset({(shared, self.task.initial_state)})

  def _table(self) -> dict:
    """Returns {state: [(digits of the long operands, output, next state)]}."""
    states = list(itertools.product(self.shared_values, self.task.states))
    every = range(self.task.base)
    digits = list(itertools.product(every, repeat=len(self.long)))
    # All pairs in one step, of arrays.
    shared, now = np.repeat(np.array(states), len(digits), axis=0).T
    symbols = [shared] * self.task.operands
    for operand, values in zip(self.long, np.array(digits).T, strict=True):
      symbols[operand] = np.tile(values, len(states))
    stepped = self.task.step(now, symbols)
    new, outputs = (np.reshape(x, (len(states), -1)).tolist() for x in stepped)
    pairs = zip(states, new, strict=True)
    after = [[(shared, x) for x in values] for (shared, _), values in pairs]
    return {
      state: [
        move
        for move in zip(digits, *values, strict=True)
        if self.possible(state, move[0])
      ]
      for state, *values in zip(states, outputs, after, strict=True)
    }

  def moves(
    self, states: frozenset, step: Gap | Position
  ) -> list[tuple[tuple, frozenset]]:
    """Returns [(column values, states after it)] of a step, in ascending
    order."""
    if isinstance(step, Gap):
      for i in range(step.nonzero_places + step.zeros):
        reached = {
          new
          for state in states
          for digits, _, new in self.table[state]
          if i < step.nonzero_places or self.ends(state, digits)
        }
        states = frozenset(reached)
      return [((), states)] if states else []
    reached = {}
    for state in states:
      for digits, output, new in self.table[state]:
        if step.zero and not self.ends(state, digits):
          continue
        seen = tuple(
          digit
          for operand, digit in zip(self.long, digits, strict=True)
          if operand in step.reads
        )
        seen += (output,) if step.has_output else ()
        reached.setdefault(seen, set()).add(new)
    return [(seen, frozenset(reached[seen])) for seen in sorted(reached)]

  def _find_period(self) -> tuple[int, int]:
    """Returns (g, p): after g or more unseen places, p more make no
    difference."""
    current, visited = [frozenset({state}) for state in self.table], []
    while current not in visited:
      visited.append(current)
      current = [self.moves(states, Gap(1, 0))[0][1] for states in current]
    first = visited.index(current)
    return first, len(visited) - first

  def shorten(self, gap: Gap) -> Gap:
    """Returns the shortest gap that leads to the same sets of states."""
    first, period = self.preperiod_and_period
    nonzero_places = gap.nonzero_places
    if nonzero_places >= first:
      nonzero_places = first + (nonzero_places - first) % period
    return Gap(nonzero_places, gap.zeros)

  def realize(
    self,
    shared: int,
    digits: dict[tuple[int, int], int],
    outputs: dict[int, int],
    size: int,
    nonzero_places: int,
    rng: np.random.Generator | None = None,
  ) -> np.ndarray | None:
    """Returns an input that has given digits and outputs, if there is one.

    Args:
      shared: the digit that all places share.
      digits: {(operand, place): digit} that the input must have.
      outputs: {place: output} that the input must lead to.
      size: how many places the input has.
      nonzero_places: how many of them may be other than zero.
      rng: chooses among such inputs; None takes the first.

    Returns:
      Digits [operands, size] in the order of reading, or None.
    """
    states, reached = {(shared, self.task.initial_state): None}, []
    for place in range(size):
      after = {}
      given = [digits.get((operand, place)) for operand in self.long]
      moves = [
        (state, symbols, new)
        for state in states
        for symbols, output, new in self.table[state]
        if outputs.get(place, output) == output
        and (place < nonzero_places or self.ends(state, symbols))
        and all(d in (None, x) for d, x in zip(given, symbols, strict=True))
      ]
      if rng is not None:
        rng.shuffle(moves)
      for state, symbols, new in moves:
        after.setdefault(new, (state, symbols))
      states = after
      reached.append(after)
    if not states:
      return None
    state = next(iter(states))
    items = np.zeros((self.task.operands, size), np.int32)
    items[self.shared, 0] = shared
    for place in reversed(range(size)):
      state, symbols = reached[place][state]
      items[self.long, place] = symbols
    return items


class Contexts:
  """All contexts of a neighborhood, in a fixed order, a few at a time.

  Attributes:
    transducer: the Transducer of the task.
    steps: the neighborhood.
    columns: how many values a context has: the shared digit if there is one,
      then those of every step.
    count: how many contexts there are; none is there twice.
  """

  def __init__(self, transducer: Transducer, steps: tuple[Gap | Position, ...]):
    """Runs the transducer over the neighborhood's steps."""
    self.transducer, self.steps = transducer, steps
    self.columns = len(transducer.shared) + sum(
      len(s.reads) + s.has_output for s in steps if isinstance(s, Position)
    )
    self._moves = []
    first = [((b,), transducer.begin(b)) for b in transducer.shared_values]
    if not transducer.shared:
      first = [((), transducer.begin(0))]
    level = self._level([None], lambda _: first)
    for step in steps:
      level = self._level(level, lambda s, step=step: transducer.moves(s, step))
    self.count = sum(self._counts())

  def _level(self, before, moves):
    """Numbers the sets of states that a step leads to, and returns them."""
    after, table = {}, []
    options = [moves(states) for states in before]  # none if nothing can follow
    width = max(
      (len(seen) for reached in options for seen, _ in reached), default=0
    )
    for reached in options:
      values = np.array([seen for seen, _ in reached], np.uint8)
      new = [after.setdefault(s, len(after)) for _, s in reached]
      table.append((values.reshape(len(reached), width), np.array(new, int)))
    self._moves.append(table)
    return list(after)

  def _counts(self) -> list[int]:
    """Returns how many contexts end in each set of states."""
    counts = [1]
    for table in self._moves:
      sets = [int(new.max(initial=-1)) for _, new in table]
      size = 1 + max(sets, default=-1)
      after = [0] * size
      for count, (_, new) in zip(counts, table, strict=True):
        for target in new:
          after[target] += count
      counts = after
    return counts

  def chunks(self, size: int) -> Iterator[np.ndarray]:
    """Yields arrays [size or fewer, columns] uint8 of all contexts, in
    order."""
    pending = np.zeros((0, self.columns), np.uint8)
    start = np.zeros((1, 0), np.uint8), np.zeros(1, int)
    for expanded in self._expand(0, *start, size):
      pending = np.concatenate([pending, expanded])
      while len(pending) >= size:
        yield pending[:size]
        pending = pending[size:]
    if len(pending):
      yield pending

  def _expand(self, level: int, values, states, size: int):
    """Yields all contexts that begin with the given values, a few at a time."""
    if level == len(self._moves):
      yield values
      return
    table = self._moves[level]
    widest = max((1, *(len(new) for _, new in table)))
    step = max(size // widest, 1)
    for start in range(0, len(values), step):
      part = slice(start, start + step)
      yield from self._expand(
        level + 1, *self._after(table, values[part], states[part]), size
      )

  @staticmethod
  def _after(table, values, states):
    """Returns every context with every value that the step can add."""
    extended, ends, parents = [], [], []
    for state in np.unique(states):
      rows, (added, new) = np.flatnonzero(states == state), table[state]
      grown = np.repeat(values[rows], len(new), axis=0)
      extended.append(
        np.concatenate([grown, np.tile(added, (len(rows), 1))], axis=1)
      )
      ends.append(np.tile(new, len(rows)))
      parents.append(np.repeat(rows, len(new)))
    # Ascending, however many come at once.
    order = np.argsort(np.concatenate(parents), kind="stable")
    return np.concatenate(extended)[order], np.concatenate(ends)[order]
