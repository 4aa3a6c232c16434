"""Tasks whose outputs an automaton writes, one for each item that it reads:
copying, and state tracking."""

import abc
import dataclasses
import functools
import itertools
import string
from collections.abc import Sequence
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check
from lengthgen_jax.sections import Fraction, Range
from lengthgen_jax.tasks.items import (
  ItemTask,
  all_equal,
  reverse_items,
  uniform,
)
from lengthgen_jax.tasks.task import Draw, Example, Ids, Size, uniform_int

MAX_TOKENS = 250  # a certificate has a byte for each token
FROM_TWO = "must be at least 2 and at most 250"


class SequenceTask(ItemTask):
  """The base class of tasks in which a transducer reads the items one by one
  and writes an output for each.

  Token ids are those of the items, 0...base - 1, of the outputs that are no
  items, of `⊥` and of PAD, in this order. The transducer reads the prompt from
  the left, or from the right if `anchor` is "right", and then `slack` more
  items, the least ones. A subclass has `item_and_output_names`, `states`,
  `step` and, unless it is 0, `initial_state`.
  """

  first_item = 0
  anchor = "left"

  @property
  @abc.abstractmethod
  def item_and_output_names(self) -> tuple[str, ...]:
    """Returns every token but `⊥` and PAD as people write it, by id. The items
    come first, those as well that are never an output."""

  @functools.cached_property
  def token_names(self) -> tuple[str, ...]:
    return *self.item_and_output_names, "⊥", "@"

  @property
  def base(self) -> int:
    return len(self.item_and_output_names)

  @property
  def transducer(self) -> bool:
    return True

  @property
  def strides(self) -> tuple[int, ...]:
    return (1,) if self.transducer else ()

  def example(self, draw: Draw, size: Size) -> Example:
    items = uniform_int(draw(size.max_length), self.base)
    return self.from_items(items[None], size)

  def from_items(self, items: jax.Array, size: Size) -> Example:
    length, prompt = size.lengths[0], items
    if self.anchor == "right":
      prompt = reverse_items(items, length)
    outputs, _ = self.read(items, length)
    return self.make_example(prompt[0], length, outputs, length + self.slack)

  def read(
    self, items: jax.Array, length: int | Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns what `transduce` does for the first `length` items [1, n] and
    least ones behind them, [n + slack]."""
    padded = jnp.pad(items, ((0, 0), (0, self.slack)))
    inside = jnp.arange(padded.shape[1]) < length
    return self.transduce(jnp.where(inside, padded, self.first_item))

  def parse(self, text: str) -> tuple[np.ndarray, list[int]]:
    items, lengths = super().parse(text)
    return items if self.anchor == "left" else items[:, ::-1], lengths

  def input_text(self, items: np.ndarray, lengths: Sequence[int]) -> str:
    step = 1 if self.anchor == "left" else -1
    return super().input_text(items[:, : lengths[0]][:, ::step], lengths)


# Copying.


@dataclasses.dataclass(frozen=True)
class Copy(SequenceTask):
  """Asks for the items as they are, which people write as integers 1...V; the
  transducer has one state.

  `5 3 9 3` -> `5 3 9 3`; `2 1` -> `2 1`.
  """

  # V, the number of different items
  alphabet: Annotated[int, Range(FROM_TWO, 2, MAX_TOKENS)] = 32

  name = "copy"
  section = "copying"
  test_sets = {"uniform": uniform, "all_equal": all_equal}
  states = (0,)

  @property
  def item_and_output_names(self) -> tuple[str, ...]:
    return tuple(str(n + 1) for n in range(self.alphabet))

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    return state, symbols[0]

  def needed(self, inputs, delimiter_index, row, target):
    place = row - delimiter_index
    if self.anchor == "right":
      place = delimiter_index - 1 - place
    return jnp.arange(inputs.shape[0]) == place


class Reverse(Copy):
  """Asks for the items from the last to the first.

  `5 3 9 3` -> `3 9 3 5`; `2 1` -> `1 2`.
  """

  name = "reverse"
  anchor = "right"


class ShiftedReverse(Reverse):
  """Asks for the items from the last to the first, each value plus 1 (V becomes
  1): a hint of `Reverse` that reads the same items in the same order.

  `5 3 8 3` -> `4 9 4 6`; `2 1` -> `2 3`.
  """

  name = "reverse_shifted"

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    return state, (symbols[0] + 1) % self.base


# State tracking.


@dataclasses.dataclass(frozen=True)
class StateTask(SequenceTask):
  """Asks for the state that an automaton is in after each item of a sequence,
  which is its output too."""

  # states: after all prefixes, in order; final: the last state alone, so that
  # the outputs are not those of the transducer
  answer: Literal["states", "final"] = "states"

  @property
  def states(self) -> tuple[int, ...]:
    return tuple(range(self.base))

  @property
  def transducer(self) -> bool:
    return self.answer == "states"

  def from_items(self, items: jax.Array, size: Size) -> Example:
    example = super().from_items(items, size)
    if self.transducer:
      return example
    last = jnp.take(example.output.ids, size.lengths[0] - 1)[None]
    output = self.segment_tokens(last, 1, self.target_segment)
    return example._replace(output=output)

  def render(self, ids: Ids) -> str:
    return super().render(ids).split()[-1]


def lone(task: ItemTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns items 0 (the identity of a group) but for one at a random place."""
  place_key, item_key = jax.random.split(key)
  place = jax.random.randint(place_key, (), 0, size.lengths[0])
  is_lone = jnp.arange(size.max_length) == place
  return jnp.where(is_lone, uniform(task, item_key, size), 0)


@dataclasses.dataclass(frozen=True)
class Modular(StateTask):
  """Asks for the sums of all prefixes of the items modulo p; items are
  0...p - 1, and with p=2 the sums are the running parity.

  `3 5 6` -> `3 1 0`; `6 6 6 6` -> `6 5 4 3`.
  """

  p: Annotated[int, Range(f"a modulus {FROM_TWO}", 2, MAX_TOKENS)] = 7

  name = "modular"
  test_sets = {"uniform": uniform, "all_equal": all_equal, "lone": lone}

  @property
  def item_and_output_names(self) -> tuple[str, ...]:
    return tuple(map(str, range(self.p)))

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    total = (state + symbols[0]) % self.p
    return total, total


@functools.cache
def group(name: str) -> tuple[list[tuple[int, ...]], np.ndarray]:
  """Returns the permutations of a group like "S5", the identity first, and the
  table [n, n] of their products: the index of s∘x, by those of s and x."""
  elements = [*itertools.permutations(range(int(name[1:])))]
  number = {element: i for i, element in enumerate(elements)}
  return elements, np.array(
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
  """

  group: Literal["S3", "S5"] = "S5"

  name = "permutations"
  test_sets = {"uniform": uniform, "all_equal": all_equal, "lone": lone}

  @functools.cached_property
  def item_and_output_names(self) -> tuple[str, ...]:
    elements, _ = group(self.group)
    return tuple("".join(str(k + 1) for k in x) for x in elements)

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    _, products = group(self.group)
    product = jnp.asarray(products)[state, symbols[0]]
    return product, product

  @property
  def expected_input(self) -> str:
    return f"permutations of {self.item_and_output_names[0]}"


def walks(task: "Dyck", key: jax.Array, size: Size) -> jax.Array:
  """Returns brackets that are nested correctly; some may be left open."""
  return task.nested(jax.random.uniform(key, (size.max_length,)))


def broken(task: "Dyck", key: jax.Array, size: Size) -> jax.Array:
  """Returns correctly nested brackets of which one is replaced by another."""
  walk_key, break_key = jax.random.split(key)
  numbers = jax.random.uniform(break_key, (2,))
  return task.break_one(walks(task, walk_key, size), numbers, size)


def deep(task: "Dyck", key: jax.Array, size: Size) -> jax.Array:
  """Returns brackets whose depth rises to the bound and falls to zero in turn,
  from any of these phases on."""
  phase_key, key = jax.random.split(key)
  phase = jax.random.randint(phase_key, (), 0, 2 * task.bound)
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
  """

  brackets: str = "()"  # pairs, like "()" or "()[]"
  # the greatest depth
  bound: Annotated[
    int, Range(f"must be from 1 to {MAX_TOKENS}", 1, MAX_TOKENS)
  ] = 8
  # the fraction of the training examples in which one bracket is replaced by
  # another; in the others every prefix is nested correctly
  broken_share: Fraction = 0.3

  name = "dyck"
  test_sets = {
    "walks": walks,
    "broken": broken,
    "deep": deep,
    "uniform": uniform,
  }
  expected_input = "brackets"
  separator = ""

  def __post_init__(self):
    super().__post_init__()
    brackets = self.brackets
    check(
      brackets and len(brackets) % 2 == 0,
      f"dyck.brackets={brackets!r}: must be pairs, like '()' or '()[]'",
    )
    others = {*string.digits, "⊥", "@"}
    check(
      len({*brackets} - others) == len(brackets)
      and not any(map(str.isspace, brackets)),
      f"dyck.brackets={brackets!r}: must be different characters, no digits"
      " (these are depths) and no spaces, ⊥ or @",
    )
    count = self.base + self.stacks + 1
    check(
      count <= MAX_TOKENS,
      f"dyck.bound={self.bound}: makes {count} tokens, at most {MAX_TOKENS} are"
      " told apart",
    )

  @property
  def kinds(self) -> int:
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
    depths = [f"{len(stack)}{stack * (self.kinds > 1)}" for stack in stacks]
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
    """Returns correctly nested items [1, n]: a number [n] below 1/2 opens a
    bracket, any other below 1 closes one, where that is possible."""

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
    numbers say where and which."""
    place = uniform_int(numbers[0], size.lengths[0])
    is_broken = jnp.arange(size.max_length) == place
    other = items + 1 + uniform_int(numbers[1], self.base - 1)
    return jnp.where(is_broken, other % self.base, items)

  def example(self, draw: Draw, size: Size) -> Example:
    numbers = draw(3 + size.max_length)
    items = self.nested(numbers[3:])
    broken = self.break_one(items, numbers[1:3], size)
    breaks = numbers[0] < self.broken_share
    return self.from_items(jnp.where(breaks, broken, items), size)

  @property
  def usage(self) -> str:
    first, second = self.brackets[:2]
    return first + first + second
