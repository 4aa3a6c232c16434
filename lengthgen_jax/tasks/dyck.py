"""Nested brackets: how deep, and whether they are nested rightly."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from lengthgen_jax.errors import check, check_share
from lengthgen_jax.tasks import sequences as sets
from lengthgen_jax.tasks.states import StateTask
from lengthgen_jax.tasks.task import below


def walks(task, key, size):
  """Rightly nested so far at every place."""
  return task.walk(jax.random.uniform(key, (size.longest,)))


def broken(task, key, size):
  """The same with another bracket at one uniform place."""
  walk_key, break_key = jax.random.split(key)
  numbers = jax.random.uniform(break_key, (2,))
  return task.broken(walks(task, walk_key, size), numbers, size)


def deep(task, key, size):
  """Up to the bound and down to zero, again and again, from anywhere on."""
  first = jax.random.randint(key, (), 0, 2 * task.bound)
  place = (first + jnp.arange(size.longest)) % (2 * task.bound)
  numbers = jax.random.uniform(key, place.shape) / 2
  return task.walk(jnp.where(place < task.bound, numbers, 1 - numbers))


@dataclasses.dataclass(frozen=True)
class Dyck(StateTask):
  """The brackets that are open, at most `bound` of them; "invalid" from the
  first bracket on that closes another one, or none, or opens one too many.

  With one kind of brackets a state is a depth; with more it is a depth and the
  brackets. What is balanced ends in `0`.

  `(()` -> `1 2 1`; `())(` -> `1 0 invalid invalid`.

  Attributes:
    brackets: pairs, like "()" or "()[]".
    bound: greatest depth.
    broken_share: part of the training examples that have another bracket at
      one place; the others are nested rightly so far everywhere.
  """

  brackets: str = "()"
  bound: int = 8
  broken_share: float = 0.3

  name: ClassVar[str] = "dyck"
  section: ClassVar[str] = "dyck"
  test_sets: ClassVar[dict] = {
    "walks": walks,
    "broken": broken,
    "deep": deep,
    "uniform": sets.uniform,
  }
  takes: ClassVar[str] = "brackets"

  def __post_init__(self):
    super().__post_init__()
    marks = self.brackets
    check(
      marks and len(marks) % 2 == 0 and len(set(marks)) == len(marks),
      f"dyck.brackets={marks!r}: must be pairs of different characters, like"
      " '()' or '()[]'",
    )
    check(
      not any(c.isspace() for c in marks),
      f"dyck.brackets={marks!r}: spaces are no brackets",
    )
    check(
      1 <= self.bound <= sets.TOKENS,
      f"dyck.bound={self.bound}: must be from 1 to {sets.TOKENS}",
    )
    check_share("dyck.broken_share", self.broken_share)
    self.check_tokens("bound", self.base + self.stacks + 1)

  @property
  def kinds(self) -> int:
    return len(self.brackets) // 2

  @property
  def base(self):
    return len(self.brackets)

  # A state is a node of the tree of all stacks, level by level: the brackets of
  # kind j on top of s make k·s + 1 + j. The one behind them is "invalid".

  @property
  def stacks(self) -> int:
    return sum(self.kinds**depth for depth in range(self.bound + 1))

  @property
  def states(self):
    return tuple(range(self.stacks + 1))

  @property
  def names(self):
    open_ones = [""]
    for state in range(1, self.stacks):
      below_it, kind = divmod(state - 1, self.kinds)
      open_ones.append(open_ones[below_it] + self.brackets[2 * kind])
    alone = self.kinds == 1
    depths = [str(len(own)) + ("" if alone else own) for own in open_ones]
    return (*self.brackets, *depths, "invalid")

  def step(self, state, symbols):
    kind, closes = symbols[0] // 2, symbols[0] % 2 == 1
    pushed = self.kinds * state + 1 + kind
    below_it, top = (state - 1) // self.kinds, (state - 1) % self.kinds
    fits = jnp.where(closes, (state > 0) & (top == kind), pushed < self.stacks)
    new = jnp.where(closes, below_it, pushed)
    new = jnp.where(fits & (state < self.stacks), new, self.stacks)
    return new, self.base + new

  def walk(self, numbers):
    """Items [1, n] that are nested rightly, from numbers [n] in [0, 1): below a
    half a bracket opens, else one closes, where that can be."""

    def one(state, number):
      full = self.kinds * state + 1 >= self.stacks
      opens = (state == 0) | (number < 0.5) & ~full
      kind = below(2 * number % 1.0, self.kinds)
      top = (state - 1) % self.kinds
      item = jnp.where(opens, 2 * kind, 2 * top + 1)
      return self.step(state, item[None])[0], item

    return jax.lax.scan(one, jnp.int32(0), numbers)[1][None]

  def broken(self, items, numbers, size):
    """Items [1, n], one of which is another bracket; two numbers say which."""
    there = jnp.arange(size.longest) == below(numbers[0], size.lengths[0])
    other = items + 1 + below(numbers[1], self.base - 1)
    return jnp.where(there, other % self.base, items)

  def draws(self, longest):
    return 3 + longest

  def example(self, numbers, size):
    items = self.walk(numbers[3:])
    wrong = self.broken(items, numbers[1:3], size)
    breaks = numbers[0] < self.broken_share
    return self.answered(jnp.where(breaks, wrong, items), size)

  # Text.

  def words(self, text):
    return list("".join(text.split()))

  @property
  def usage(self):
    first, second = self.brackets[:2]
    return first + first + second
