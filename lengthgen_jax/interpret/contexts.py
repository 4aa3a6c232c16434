"""All contexts of a neighborhood: the values that its digits and outputs can
have together."""

import numpy as np

from lengthgen_jax.interpret.tape import Place, Tape


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
