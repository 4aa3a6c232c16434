"""Defines the task of nested brackets: which ones are open, and whether they
are nested correctly."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check, check_probability
from lengthgen_jax.tasks import sequences as sets
from lengthgen_jax.tasks.states import StateTask
from lengthgen_jax.tasks.task import Example, Size, below


def walks(task: "Dyck", key: jax.Array, size: Size) -> jax.Array:
  """Returns brackets that are nested correctly so far at every place."""
  return task.walk(jax.random.uniform(key, (size.longest,)))


def broken(task: "Dyck", key: jax.Array, size: Size) -> jax.Array:
  """Returns correctly nested brackets with another bracket at one uniform
  place."""
  walk_key, break_key = jax.random.split(key)
  numbers = jax.random.uniform(break_key, (2,))
  return task.broken(walks(task, walk_key, size), numbers, size)


def deep(task: "Dyck", key: jax.Array, size: Size) -> jax.Array:
  """Returns brackets that go up to the bound and down to zero in turn, from a
  random phase on."""
  phase = jax.random.randint(key, (), 0, 2 * task.bound)
  place = (phase + jnp.arange(size.longest)) % (2 * task.bound)
  numbers = jax.random.uniform(key, place.shape) / 2
  return task.walk(jnp.where(place < task.bound, numbers, 1 - numbers))


@dataclasses.dataclass(frozen=True)
class Dyck(StateTask):
  """Asks for the brackets that are open after each item, at most `bound` of
  them.

  The state is "invalid" from the first bracket on that closes another one, or
  none, or opens one too many. With one kind of brackets a state is a depth;
  with more it is a depth and the open brackets. Balanced inputs end in `0`.

  `(()` -> `1 2 1`; `())(` -> `1 0 invalid invalid`.

  Attributes:
    brackets: pairs, like "()" or "()[]".
    bound: greatest depth.
    broken_share: part of the training examples that have another bracket at
      one place; the others are nested correctly so far everywhere.
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
      not any(mark.isspace() for mark in marks),
      f"dyck.brackets={marks!r}: spaces are no brackets",
    )
    check(
      1 <= self.bound <= sets.TOKENS,
      f"dyck.bound={self.bound}: must be from 1 to {sets.TOKENS}",
    )
    check_probability("dyck.broken_share", self.broken_share)
    self.check_tokens("bound", self.base + self.stacks + 1)

  @property
  def kinds(self) -> int:
    """Returns the number of kinds of brackets."""
    return len(self.brackets) // 2

  @property
  def base(self) -> int:
    return len(self.brackets)

  # A state is a node of the tree of all stacks, numbered level by level: with k
  # kinds, a bracket of kind j on top of stack s makes stack k·s + 1 + j. The
  # last state is "invalid".

  @property
  def stacks(self) -> int:
    """Returns the number of stacks of at most `bound` open brackets."""
    return sum(self.kinds**depth for depth in range(self.bound + 1))

  @property
  def states(self) -> tuple[int, ...]:
    return tuple(range(self.stacks + 1))

  @property
  def token_names(self) -> tuple[str, ...]:
    stacks = [""]
    for state in range(1, self.stacks):
      parent, kind = divmod(state - 1, self.kinds)
      stacks.append(stacks[parent] + self.brackets[2 * kind])
    is_single = self.kinds == 1
    depths = [
      str(len(stack)) + ("" if is_single else stack) for stack in stacks
    ]
    return (*self.brackets, *depths, "invalid")

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    kind, closes = symbols[0] // 2, symbols[0] % 2 == 1
    pushed = self.kinds * state + 1 + kind
    parent, top = (state - 1) // self.kinds, (state - 1) % self.kinds
    fits = jnp.where(closes, (state > 0) & (top == kind), pushed < self.stacks)
    next_state = jnp.where(closes, parent, pushed)
    next_state = jnp.where(
      fits & (state < self.stacks), next_state, self.stacks
    )
    return next_state, self.base + next_state

  def walk(self, numbers: jax.Array) -> jax.Array:
    """Returns correctly nested items [1, n], made of numbers [n] in [0, 1): a
    number below a half opens a bracket, any other closes one, where that is
    possible."""

    def choose_bracket(state, number):
      is_full = self.kinds * state + 1 >= self.stacks
      opens = (state == 0) | (number < 0.5) & ~is_full
      kind = below(2 * number % 1.0, self.kinds)
      top = (state - 1) % self.kinds
      item = jnp.where(opens, 2 * kind, 2 * top + 1)
      return self.step(state, item[None])[0], item

    return jax.lax.scan(choose_bracket, jnp.int32(0), numbers)[1][None]

  def broken(
    self, items: jax.Array, numbers: jax.Array, size: Size
  ) -> jax.Array:
    """Returns items [1, n] with another bracket at one place; two random
    numbers say where and which."""
    is_broken = jnp.arange(size.longest) == below(numbers[0], size.lengths[0])
    other = items + 1 + below(numbers[1], self.base - 1)
    return jnp.where(is_broken, other % self.base, items)

  def num_random(self, longest: int) -> int:
    return 3 + longest

  def example(self, numbers: jax.Array, size: Size) -> Example:
    items = self.walk(numbers[3:])
    broken = self.broken(items, numbers[1:3], size)
    breaks = numbers[0] < self.broken_share
    return self.from_items(jnp.where(breaks, broken, items), size)

  # Text.

  def words(self, text: str) -> list[str]:
    return list("".join(text.split()))

  @property
  def usage(self) -> str:
    first, second = self.brackets[:2]
    return first + first + second
