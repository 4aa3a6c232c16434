"""Defines tasks whose outputs an automaton writes, one for each item that it
reads: copying, and state tracking."""

import abc
import dataclasses
import functools
import itertools
import string
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check, check_choice, check_probability
from lengthgen_jax.tasks.items import (
  ItemTask,
  all_equal,
  reverse_items,
  uniform,
)
from lengthgen_jax.tasks.task import Example, Ids, Size, uniform_int

MAX_TOKENS = 250  # a certificate has a byte for each token
ANSWERS = ("states", "final")
GROUPS = {"S3": 3, "S5": 5}  # how many things each group permutes


@dataclasses.dataclass(frozen=True)
class SequenceTask(ItemTask):
  """This is the base class of tasks in which a transducer reads the items one
  by one and writes an output for each.

  Token ids are those of the items, 0...base - 1, of the outputs that are no
  items, of `⊥` and of PAD, in this order. The transducer reads the prompt from
  the left, or from the right if `anchor` is "right". A subclass has `base`,
  `item_and_output_names`, `states`, `step` and, unless it is 0,
  `initial_state`.
  """

  first_item = 0
  anchor: ClassVar[str] = "left"

  @property
  @abc.abstractmethod
  def item_and_output_names(self) -> tuple[str, ...]:
    """Returns every token but `⊥` and PAD as people write it, by id. The items
    come first, those as well that are never an output."""

  @functools.cached_property
  def token_names(self) -> tuple[str, ...]:
    return *self.item_and_output_names, "⊥", "@"

  @property
  def delimiter(self) -> int:
    return self.vocab_size - 2

  @property
  def pad(self) -> int:
    return self.vocab_size - 1

  @property
  def transducer(self) -> bool:
    return True

  @property
  def strides(self) -> tuple[int, ...]:
    return (1,)

  @property
  def stress_sets(self) -> tuple[str, ...]:
    return tuple(self.test_sets)[1:]

  def check_num_tokens(self, field: str, count: int) -> None:
    """Raises UsageError if `count` tokens, which follow from the config field
    `field` of the task, are more than a certificate can tell apart."""
    check(
      count <= MAX_TOKENS,
      f"{self.section}.{field}={getattr(self, field)!r}: makes {count} tokens,"
      f" at most {MAX_TOKENS} are told apart",
    )

  def num_random(self, max_length: int) -> int:
    return max_length

  def example(self, numbers: jax.Array, size: Size) -> Example:
    return self.from_items(uniform_int(numbers, self.base)[None], size)

  def from_items(self, items: jax.Array, size: Size) -> Example:
    length, prompt = size.lengths[0], items
    if self.anchor == "right":
      prompt = reverse_items(items, length)
    outputs, _ = self.transduce(items)
    return self.make_example(prompt[0], length, outputs, length)

  def parse(self, text: str) -> tuple[np.ndarray, list[int]]:
    items, lengths = super().parse(text)
    return items if self.anchor == "left" else items[:, ::-1], lengths

  def input_text(self, items: np.ndarray, length: int) -> str:
    step = 1 if self.anchor == "left" else -1
    return " ".join(self.symbols(items[0, :length][::step]))


# Copying.


@dataclasses.dataclass(frozen=True)
class Copy(SequenceTask):
  """Asks for the items as they are, which people write as integers 1...V; the
  transducer has one state.

  `5 3 9 3` -> `5 3 9 3`; `2 1` -> `2 1`.

  Attributes:
    alphabet: V, the number of different items.
  """

  alphabet: int = 32

  name: ClassVar[str] = "copy"
  section: ClassVar[str] = "copying"
  test_sets = {"uniform": uniform, "all_equal": all_equal}
  states = (0,)

  def __post_init__(self):
    check(
      self.alphabet >= 2,
      f"copying.alphabet={self.alphabet}: must be at least 2",
    )
    self.check_num_tokens("alphabet", self.alphabet)

  @property
  def base(self) -> int:
    return self.alphabet

  @property
  def item_and_output_names(self) -> tuple[str, ...]:
    return tuple(str(n + 1) for n in range(self.alphabet))

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    return state, symbols[0]


class Reverse(Copy):
  """Asks for the items from the last to the first.

  `5 3 9 3` -> `3 9 3 5`; `2 1` -> `1 2`.
  """

  name = "reverse"
  anchor = "right"


# State tracking.


@dataclasses.dataclass(frozen=True)
class StateTask(SequenceTask):
  """Asks for the state that an automaton is in after each item of a sequence.

  Attributes:
    answer: "states": the outputs are the states after all prefixes, in order;
      "final": the last state alone, so that the outputs are not those of the
      transducer.
  """

  answer: str = "states"

  def __post_init__(self):
    check_choice(f"{self.section}.answer", self.answer, ANSWERS)

  @property
  def transducer(self) -> bool:
    return self.answer == "states"

  @property
  def strides(self) -> tuple[int, ...]:
    return (1,) if self.transducer else ()

  def from_items(self, items: jax.Array, size: Size) -> Example:
    example = super().from_items(items, size)
    if self.transducer:
      return example
    last = jnp.take(example.output.ids, size.lengths[0] - 1)[None]
    output = self.segment_tokens(last, 1, self.target_segment)
    return example._replace(output=output)

  def render(self, ids: Ids) -> str:
    """Returns the last state of the output, which is the answer."""
    return super().render(ids).split()[-1]


def lone(task: ItemTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns items 0 (the identity of a group) but for a uniformly drawn item at
  a uniformly drawn place."""
  place_key, item_key = jax.random.split(key)
  place = jax.random.randint(place_key, (), 0, size.lengths[0])
  is_lone = jnp.arange(size.max_length) == place
  return jnp.where(is_lone, uniform(task, item_key, size), 0)


@dataclasses.dataclass(frozen=True)
class Modular(StateTask):
  """Asks for the sums of all prefixes of the items modulo p; items are
  0...p - 1.

  With p=2 they are the running parity of bits.

  `3 5 6` -> `3 1 0`; `6 6 6 6` -> `6 5 4 3`.

  Attributes:
    p: the modulus.
  """

  p: int = 7

  name: ClassVar[str] = "modular"
  section: ClassVar[str] = "modular"
  test_sets = {"uniform": uniform, "all_equal": all_equal, "lone": lone}

  def __post_init__(self):
    super().__post_init__()
    check(self.p >= 2, f"modular.p={self.p}: a modulus must be at least 2")
    self.check_num_tokens("p", self.p)

  @property
  def base(self) -> int:
    return self.p

  @property
  def states(self) -> tuple[int, ...]:
    return tuple(range(self.p))

  @property
  def item_and_output_names(self) -> tuple[str, ...]:
    return tuple(map(str, range(self.p)))

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    total = (state + symbols[0]) % self.p
    return total, total

  @property
  def expected_input(self) -> str:
    return f"numbers from 0 to {self.p - 1}"

  @property
  def usage(self) -> str:
    return " ".join(str(n % self.p) for n in (1, 3, 2, 5))


@functools.cache
def group_elements(size: int) -> tuple[tuple[int, ...], ...]:
  """Returns all permutations of 0...size - 1, the identity first."""
  return tuple(itertools.permutations(range(size)))


@functools.cache
def group_products(size: int) -> np.ndarray:
  """Returns the multiplication table [n, n] of the group: the index of s∘x in
  `group_elements`, by those of s and x."""
  elements = group_elements(size)
  number = {element: i for i, element in enumerate(elements)}
  return np.array(
    [[number[tuple(np.take(s, x))] for x in elements] for s in elements]
  )


@dataclasses.dataclass(frozen=True)
class Permutations(StateTask):
  """Asks for the products of all prefixes of the items, y_i = y_(i-1) ∘ x_i.

  What stood at place x_i(k) comes to place k. Items are all elements of the
  group (120 in S5), not only generators: the word problem as Liu et al. (2023,
  arXiv 2210.10749) and Merrill et al. (2024, arXiv 2404.08819) pose it. The
  word problem of S5 is complete for NC1; S3 is a solvable group.

  `21345 13245` -> `21345 23145`; `23451 23451` -> `23451 34512`.

  Attributes:
    group: "S3" or "S5".
  """

  group: str = "S5"

  name: ClassVar[str] = "permutations"
  section: ClassVar[str] = "permutations"
  test_sets = {"uniform": uniform, "all_equal": all_equal, "lone": lone}

  def __post_init__(self):
    super().__post_init__()
    check_choice("permutations.group", self.group, GROUPS)

  @property
  def elements(self) -> tuple[tuple[int, ...], ...]:
    """Returns the group's permutations by id, the identity first."""
    return group_elements(GROUPS[self.group])

  @property
  def base(self) -> int:
    return len(self.elements)

  @property
  def states(self) -> tuple[int, ...]:
    return tuple(range(self.base))

  @functools.cached_property
  def item_and_output_names(self) -> tuple[str, ...]:
    return tuple("".join(str(k + 1) for k in x) for x in self.elements)

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    table = jnp.asarray(group_products(GROUPS[self.group]))
    product = table[state, symbols[0]]
    return product, product

  @property
  def expected_input(self) -> str:
    return f"permutations of {self.item_and_output_names[0]}"

  @property
  def usage(self) -> str:
    names = self.item_and_output_names
    return f"{names[1]} {names[-1]}"


def walks(task: "Dyck", key: jax.Array, size: Size) -> jax.Array:
  """Returns brackets of which every prefix is nested correctly; some may be
  left open at the end."""
  return task.nested(jax.random.uniform(key, (size.max_length,)))


def broken(task: "Dyck", key: jax.Array, size: Size) -> jax.Array:
  """Returns correctly nested brackets in which another bracket replaces the one
  at a uniformly drawn place."""
  walk_key, break_key = jax.random.split(key)
  numbers = jax.random.uniform(break_key, (2,))
  return task.break_one(walks(task, walk_key, size), numbers, size)


def deep(task: "Dyck", key: jax.Array, size: Size) -> jax.Array:
  """Returns brackets whose depth rises to the bound and falls to zero in turn;
  the first turns may be shorter ones."""
  phase = jax.random.randint(key, (), 0, 2 * task.bound)
  place = (phase + jnp.arange(size.max_length)) % (2 * task.bound)
  numbers = jax.random.uniform(key, place.shape) / 2
  return task.nested(jnp.where(place < task.bound, numbers, 1 - numbers))


@dataclasses.dataclass(frozen=True)
class Dyck(StateTask):
  """Asks for the brackets that are open after each item, at most `bound` of
  them.

  The state is "invalid" from the first bracket on that closes one of another
  kind, or none, or opens one too many. With one kind of brackets people write a
  state as the depth; with more, as the depth and the open brackets. The last
  output of a balanced input is `0`.

  `(()` -> `1 2 1`; `())(` -> `1 0 invalid invalid`.

  Attributes:
    brackets: pairs, like "()" or "()[]".
    bound: the greatest depth.
    broken_share: the fraction of the training examples in which one bracket is
      replaced by another; in the others every prefix is nested correctly.
  """

  brackets: str = "()"
  bound: int = 8
  broken_share: float = 0.3

  name: ClassVar[str] = "dyck"
  section: ClassVar[str] = "dyck"
  test_sets = {
    "walks": walks,
    "broken": broken,
    "deep": deep,
    "uniform": uniform,
  }
  expected_input = "brackets"

  def __post_init__(self):
    super().__post_init__()
    brackets = self.brackets
    check(
      brackets and len(brackets) % 2 == 0,
      f"dyck.brackets={brackets!r}: must be pairs, like '()' or '()[]'",
    )
    check(
      len({*brackets, *string.digits}) == len(brackets) + len(string.digits)
      and not any(bracket.isspace() for bracket in brackets),
      f"dyck.brackets={brackets!r}: must be different characters, no digits"
      " (these are depths) and no spaces",
    )
    check(
      1 <= self.bound <= MAX_TOKENS,
      f"dyck.bound={self.bound}: must be from 1 to {MAX_TOKENS}",
    )
    check_probability("dyck.broken_share", self.broken_share)
    self.check_num_tokens("bound", self.base + self.stacks + 1)

  @property
  def kinds(self) -> int:
    """Returns the number of kinds of brackets."""
    return len(self.brackets) // 2

  @property
  def base(self) -> int:
    return len(self.brackets)

  # A state is a stack of open brackets, a node of the tree of all stacks, which
  # are numbered level by level from the empty one: with k kinds, a bracket of
  # kind j on top of stack s makes stack k·s + 1 + j. The last state is
  # "invalid".

  @property
  def stacks(self) -> int:
    """Returns the number of stacks of at most `bound` open brackets."""
    return sum(self.kinds**depth for depth in range(self.bound + 1))

  @property
  def states(self) -> tuple[int, ...]:
    return tuple(range(self.stacks + 1))

  @property
  def item_and_output_names(self) -> tuple[str, ...]:
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
    fits &= state < self.stacks
    stack = jnp.where(closes, parent, pushed)
    next_state = jnp.where(fits, stack, self.stacks)
    return next_state, self.base + next_state

  def nested(self, numbers: jax.Array) -> jax.Array:
    """Returns items [1, n] of which every prefix is nested correctly.

    They are made from uniform numbers [n] in [0, 1): one below 1/2 opens a
    bracket, any other closes one, where that is possible.
    """

    def choose_bracket(state, number):
      is_full = self.kinds * state + 1 >= self.stacks
      opens = (state == 0) | (number < 0.5) & ~is_full
      kind = uniform_int(2 * number % 1.0, self.kinds)
      top = (state - 1) % self.kinds
      item = jnp.where(opens, 2 * kind, 2 * top + 1)
      return self.step(state, (item,))[0], item

    return jax.lax.scan(choose_bracket, jnp.int32(0), numbers)[1][None]

  def break_one(
    self, items: jax.Array, numbers: jax.Array, size: Size
  ) -> jax.Array:
    """Returns items [1, n] with another bracket at one place; two uniform
    numbers in [0, 1) say where and which."""
    place = uniform_int(numbers[0], size.lengths[0])
    is_broken = jnp.arange(size.max_length) == place
    other = items + 1 + uniform_int(numbers[1], self.base - 1)
    return jnp.where(is_broken, other % self.base, items)

  def num_random(self, max_length: int) -> int:
    return 3 + max_length

  def example(self, numbers: jax.Array, size: Size) -> Example:
    items = self.nested(numbers[3:])
    broken = self.break_one(items, numbers[1:3], size)
    breaks = numbers[0] < self.broken_share
    return self.from_items(jnp.where(breaks, broken, items), size)

  # Text.

  def split_items(self, text: str) -> list[str]:
    return list("".join(text.split()))

  @property
  def usage(self) -> str:
    first, second = self.brackets[:2]
    return first + first + second
