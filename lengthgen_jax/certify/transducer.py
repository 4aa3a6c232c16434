"""This module finds out which contexts of a neighborhood occur.

A task is an automaton, a transducer, over the places of its numbers.

A neighborhood is a list of steps over consecutive places, least significant
first: places that are looked at (Position), runs of others (Gap).
Its contexts are all values that its digits and outputs can have together; they
are found by running the transducer over sets of states.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lengthgen_jax.errors import check

VALUES = 256  # values of a column: contexts are arrays of bytes


class Gap(NamedTuple):
  """A skip is a run of places that no row looks at: `live` places of any
  digits, then `zeros` places of padding."""

  live: int
  zeros: int


class Position(NamedTuple):
  """A place is one that is looked at.

  Attributes:
    reads: operands whose digit is a column of the contexts.
    says: whether the output is a column too.
    zero: whether the place is padding.
  """

  reads: tuple[int, ...]
  says: bool
  zero: bool


class Transducer:
  """A tape is a task's transducer over sets of states.

  A state here is (the digit that all places share or 0, state of the task):
  N×1's digit is drawn once. Sets are frozensets. All digits and outputs are
  below `values`.

  Attributes:
    task: the task, or another transducer with the same attributes.
    shared: operands of a single digit, which all places share.
    long: the other operands.
    shared_values: what the shared digit may be; (0,) without one.
    table: {state: [(digits of the long operands, output, next state)]}.
    values: one more than the largest digit or output.
    settles: (g, p): after g or more unseen places, p more make no difference.
  """

  def __init__(self, task):
    """Tabulates the transducer of a task, or of what has the same attributes.

    Raises:
      UsageError: it has more digits and outputs than a byte can hold.
    """
    self.task = task
    self.shared = task.shared
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
    self.settles = self._settle()

  def possible(self, state: tuple[int, int], digits: tuple[int, ...]) -> bool:
    """Returns whether these digits can follow a state."""
    return True

  def ends(self, state: tuple[int, int], digits: tuple[int, ...]) -> bool:
    """Returns whether these digits can be padding after a state."""
    return not any(digits)

  def begin(self, shared: int) -> frozenset:
    """Returns the set of states before the first place."""
    return frozenset({(shared, self.task.begin)})

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
      for i in range(step.live + step.zeros):
        reached = {
          new
          for state in states
          for digits, _, new in self.table[state]
          if i < step.live or self.ends(state, digits)
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
        seen += (output,) if step.says else ()
        reached.setdefault(seen, set()).add(new)
    return [(seen, frozenset(reached[seen])) for seen in sorted(reached)]

  def _settle(self) -> tuple[int, int]:
    """Returns (g, p): after g or more unseen places, p more make no
    difference."""
    current, visited = [frozenset({state}) for state in self.table], []
    while current not in visited:
      visited.append(current)
      current = [self.moves(states, Gap(1, 0))[0][1] for states in current]
    first = visited.index(current)
    return first, len(visited) - first

  def shorten(self, skip: Gap) -> Gap:
    """Returns the shortest skip that does the same."""
    first, period = self.settles
    live = skip.live
    if live >= first:
      live = first + (live - first) % period
    return Gap(live, skip.zeros)

  def realize(
    self,
    shared: int,
    digits: dict[tuple[int, int], int],
    outputs: dict[int, int],
    size: int,
    live: int,
    rng: np.random.Generator | None = None,
  ) -> np.ndarray | None:
    """Returns an input that has given digits and outputs, if there is one.

    Args:
      shared: the digit that all places share.
      digits: {(operand, place): digit} that the input must have.
      outputs: {place: output} that the input must lead to.
      size: how many places the input has.
      live: how many of them may be other than zero.
      rng: chooses among such inputs; None takes the first.

    Returns:
      Digits [operands, size] in the order of reading, or None.
    """
    states, reached = {(shared, self.task.begin): None}, []
    for place in range(size):
      after = {}
      given = [digits.get((operand, place)) for operand in self.long]
      moves = [
        (state, symbols, new)
        for state in states
        for symbols, output, new in self.table[state]
        if outputs.get(place, output) == output
        and (place < live or self.ends(state, symbols))
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
  """Contexts are all contexts of a neighborhood, in a fixed order, a few at a
  time.

  Attributes:
    tape: the Transducer of the task.
    steps: the neighborhood.
    columns: how many values a context has: the shared digit if there is one,
      then those of every step.
    count: how many contexts there are; none is there twice.
  """

  def __init__(self, tape: Transducer, steps: tuple[Gap | Position, ...]):
    """Runs the transducer over the neighborhood's steps."""
    self.tape, self.steps = tape, steps
    self.columns = len(tape.shared) + sum(
      len(s.reads) + s.says for s in steps if isinstance(s, Position)
    )
    self._moves = []
    first = [((b,), tape.begin(b)) for b in tape.shared_values]
    if not tape.shared:
      first = [((), tape.begin(0))]
    level = self._level([None], lambda _: first)
    for step in steps:
      level = self._level(level, lambda s, step=step: tape.moves(s, step))
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
