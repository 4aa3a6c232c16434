"""Which neighborhoods occur: a task as an automaton over the places of its
numbers.

A neighborhood is a list of steps over consecutive places, least significant
first: places that are looked at (Place) and runs of places that are not
(Skip). Its contexts are all values that its digits and outputs can have at
once, found by running the transducer over sets of states.

All contexts of a neighborhood: the values that its digits and outputs can
have together.
"""

import itertools
from typing import NamedTuple

import numpy as np

from lengthgen_jax.errors import check

VALUES = 256  # contexts are bytes


class Skip(NamedTuple):
  """Places that nobody looks at: `live` of any digits, then `zeros` of the
  padding's."""

  live: int
  zeros: int


class Place(NamedTuple):
  """A place that is looked at.

  Attributes:
    reads: operands whose digit is a column of the contexts.
    says: whether the output is one too.
    zero: whether the place is padding.
  """

  reads: tuple[int, ...]
  says: bool
  zero: bool


class Tape:
  """A task's transducer over sets of states.

  A state here is (the digit that all places share or 0, state of the task):
  N×1's digit is drawn once. Sets are frozensets. All digits and outputs are
  below `values`.
  """

  def __init__(self, task):
    self.task = task
    self.shared = task.shared
    self.long = [i for i in range(task.operands) if i not in self.shared]
    self.shared_values = range(task.base) if self.shared else (0,)
    self.table = self._table()
    outputs = max(told for own in self.table.values() for _, told, _ in own)
    self.values = 1 + max(outputs, task.base - 1, *self.shared_values)
    check(
      self.values <= VALUES,
      f"certify: {type(task).__name__} has {self.values} digits and outputs,"
      f" of which a context tells {VALUES} apart",
    )
    self.settles = self._settle()

  def possible(self, state, digits) -> bool:
    """Whether these digits can follow."""
    return True

  def ends(self, state, digits) -> bool:
    """Whether these digits can be padding."""
    return not any(digits)

  def begin(self, shared: int):
    """The states before the first place."""
    return frozenset({(shared, self.task.begin)})

  def _table(self) -> dict:
    """{state: [(digits of the long operands, output, next state)]}."""
    states = list(itertools.product(self.shared_values, self.task.states))
    every = range(self.task.base)
    digits = list(itertools.product(every, repeat=len(self.long)))
    # All pairs in one step, of arrays.
    shared, now = np.repeat(np.array(states), len(digits), axis=0).T
    symbols = [shared] * self.task.operands
    for operand, own in zip(self.long, np.array(digits).T, strict=True):
      symbols[operand] = np.tile(own, len(states))
    found = self.task.step(now, symbols)
    new, told = (np.reshape(x, (len(states), -1)).tolist() for x in found)
    pairs = zip(states, new, strict=True)
    after = [[(shared, x) for x in own] for (shared, _), own in pairs]
    return {
      state: [
        move
        for move in zip(digits, *own, strict=True)
        if self.possible(state, move[0])
      ]
      for state, *own in zip(states, told, after, strict=True)
    }

  def moves(self, states, step) -> list:
    """[(column values, states after it)] of a step, in ascending order."""
    if isinstance(step, Skip):
      for i in range(step.live + step.zeros):
        found = {
          new
          for state in states
          for digits, _, new in self.table[state]
          if i < step.live or self.ends(state, digits)
        }
        states = frozenset(found)
      return [((), states)] if states else []
    found = {}
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
        found.setdefault(seen, set()).add(new)
    return [(seen, frozenset(found[seen])) for seen in sorted(found)]

  def _settle(self) -> tuple[int, int]:
    """(g, p): after g or more unseen places, p more make no difference."""
    now, met = [frozenset({state}) for state in self.table], []
    while now not in met:
      met.append(now)
      now = [self.moves(states, Skip(1, 0))[0][1] for states in now]
    first = met.index(now)
    return first, len(met) - first

  def shorten(self, skip: Skip) -> Skip:
    """The shortest skip that does the same."""
    first, period = self.settles
    live = skip.live
    if live >= first:
      live = first + (live - first) % period
    return Skip(live, skip.zeros)

  def realize(
    self, shared: int, digits: dict, outputs: dict, size: int, live, rng=None
  ):
    """Digits [operands, size] of an input, in the order of reading, or None.

    Args:
      shared: the digit that all places share.
      digits: {(operand, place): digit} that it must have.
      outputs: {place: output} that it must lead to.
      size: places.
      live: how many of them may be other than zero.
      rng: numpy Generator that chooses among such inputs; None: the first.
    """
    states, reached = {(shared, self.task.begin): None}, []
    for place in range(size):
      after = {}
      given = [digits.get((operand, place)) for operand in self.long]
      moves = [
        (state, own, new)
        for state in states
        for own, output, new in self.table[state]
        if outputs.get(place, output) == output
        and (place < live or self.ends(state, own))
        and all(d in (None, x) for d, x in zip(given, own, strict=True))
      ]
      if rng is not None:
        rng.shuffle(moves)
      for state, own, new in moves:
        after.setdefault(new, (state, own))
      states = after
      reached.append(after)
    if not states:
      return None
    state = next(iter(states))
    found = np.zeros((self.task.operands, size), np.int32)
    found[self.shared, 0] = shared
    for place in reversed(range(size)):
      state, own = reached[place][state]
      found[self.long, place] = own
    return found


class Contexts:
  """All contexts of a neighborhood, in a fixed order, a few at a time.

  Attributes:
    columns: how many values a context has: the shared digit if there is one,
      then those of every step.
    count: how many contexts there are; none is there twice.
  """

  def __init__(self, tape: Tape, steps):
    self.tape, self.steps = tape, steps
    self.columns = len(tape.shared) + sum(
      len(s.reads) + s.says for s in steps if isinstance(s, Place)
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
    """Numbers the sets of states that a step leads to."""
    after, table = {}, []
    every = [moves(states) for states in before]  # none if nothing can follow
    width = max((len(seen) for found in every for seen, _ in found), default=0)
    for found in every:
      values = np.array([seen for seen, _ in found], np.uint8)
      new = [after.setdefault(s, len(after)) for _, s in found]
      table.append((values.reshape(len(found), width), np.array(new, int)))
    self._moves.append(table)
    return list(after)

  def _counts(self) -> list[int]:
    """How many contexts end in each set of states."""
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

  def chunks(self, size: int):
    """Arrays [size or fewer, columns] uint8 of all contexts, in order."""
    kept = np.zeros((0, self.columns), np.uint8)
    start = np.zeros((1, 0), np.uint8), np.zeros(1, int)
    for found in self._expand(0, *start, size):
      kept = np.concatenate([kept, found])
      while len(kept) >= size:
        yield kept[:size]
        kept = kept[size:]
    if len(kept):
      yield kept

  def _expand(self, level: int, values, states, size: int):
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
    """Every context with every value that the step can add."""
    found, ends, before = [], [], []
    for state in np.unique(states):
      own, (added, new) = np.flatnonzero(states == state), table[state]
      grown = np.repeat(values[own], len(new), axis=0)
      found.append(
        np.concatenate([grown, np.tile(added, (len(own), 1))], axis=1)
      )
      ends.append(np.tile(new, len(own)))
      before.append(np.repeat(own, len(new)))
    # Ascending, however many come at once.
    order = np.argsort(np.concatenate(before), kind="stable")
    return np.concatenate(found)[order], np.concatenate(ends)[order]
