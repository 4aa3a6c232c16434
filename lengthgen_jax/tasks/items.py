"""Defines the base class of tasks over the integers 1...V: tokens, text, and
test sets of any of them."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import quoted
from lengthgen_jax.tasks.task import Example, Size, Task, below, expect

BIG = 1 << 30  # a value that sorts behind every item


class ItemTask(Task):
  """This is the base class of tasks whose items are the integers 1...V.

  PAD is 0, `⊥` is V + 1 and `c`, the carry marker, V + 2. A subclass has
  `alphabet`, which is V.
  """

  segments = ("items",)
  pad = 0

  @property
  def vocab_size(self) -> int:
    return self.alphabet + 3

  @property
  def delimiter(self) -> int:
    return self.alphabet + 1

  start = delimiter

  def told(
    self,
    items: jax.Array,
    length: int | Array,
    output: jax.Array,
    size: int | Array,
    given: int | Array = 0,
  ) -> Example:
    """Returns the example of the first `length` items and of `size` tokens of
    output, `given` of which are not scored."""
    prompt = self.segment_tokens(items, length, 0)
    return Example(
      prompt, self.segment_tokens(output, size, self.target_segment), given
    )

  def symbols(self, ids: Sequence[int] | np.ndarray) -> list[str]:
    marks = {self.pad: "@", self.delimiter: "⊥", self.delimiter + 1: "c"}
    return [marks.get(int(token), str(int(token))) for token in ids]

  # Text: numbers with spaces between them.

  @property
  def usage(self) -> str:
    return "5 3 9 3" if self.alphabet >= 9 else "2 1 2"

  def parse(self, text: str) -> tuple[list[int], list[int]]:
    expected = (
      f"{self.name} takes numbers from 1 to {self.alphabet} like {self.usage}"
    )
    words = text.split()
    expect(words, f"empty line; {expected}")
    for word in words:
      digits = word.lstrip("0") if word.isascii() and word.isdigit() else ""
      is_short = 0 < len(digits) <= len(str(self.alphabet))
      expect(
        is_short and int(digits) <= self.alphabet,
        f"{quoted(text)} has {quoted(word)}; {expected}",
      )
    return [int(word.lstrip("0")) for word in words], [len(words)]

  def render(self, ids: Sequence[int] | np.ndarray) -> str:
    noun = "digit" if self.of_digits else "item"
    for token in ids:
      is_item = 1 <= token <= self.alphabet
      expect(is_item, f"the model wrote token {token}, which is no {noun}")
    return " ".join(map(str, ids))


def uniform(task: ItemTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns items drawn uniformly."""
  return jax.random.randint(key, (size.longest,), 1, task.alphabet + 1)


def ascending(task: ItemTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns uniform items in ascending order."""
  inside = jnp.arange(size.longest) < size.lengths[0]
  return jnp.sort(jnp.where(inside, uniform(task, key, size), BIG))


def descending(task: ItemTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns uniform items in descending order."""
  last = size.lengths[0] - 1 - jnp.arange(size.longest)
  return ascending(task, key, size)[jnp.maximum(last, 0)]


def all_equal(task: ItemTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns one uniform item, repeated everywhere."""
  return jnp.broadcast_to(uniform(task, key, size)[0], (size.longest,))


def two_values(task: ItemTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns two distinct values in random order."""
  numbers, alphabet = (
    jax.random.uniform(key, (size.longest + 1, 2)),
    task.alphabet,
  )
  one = below(numbers[0, 0], alphabet)
  other = (one + 1 + below(numbers[0, 1], alphabet - 1)) % alphabet
  return jnp.where(numbers[1:, 0] < 0.5, one, other) + 1


def near_ties(task: ItemTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns three consecutive values in random order, so that many items are
  equal or nearly so."""
  numbers, count = (
    jax.random.uniform(key, (size.longest + 1,)),
    min(3, task.alphabet),
  )
  first = below(numbers[0], task.alphabet - count + 1)
  return first + below(numbers[1:], count) + 1


def repeats(
  task: ItemTask, key: jax.Array, size: Size, items: int, times: int
) -> jax.Array:
  """Returns `items` distinct values, each `times` times, and uniform ones,
  shuffled (task hinting paper, section 6)."""
  value_key, uniform_key, order_key = jax.random.split(key, 3)
  values = jax.random.permutation(value_key, task.alphabet) + 1
  repeated = jnp.repeat(values[:items], times)
  mixed = uniform(task, uniform_key, size).at[: len(repeated)].set(repeated)
  return shuffled(order_key, mixed, size)


def multiplicity(
  task: ItemTask, key: jax.Array, size: Size, times: int
) -> jax.Array:
  """Returns items in random order, whose values occur `times` times each; one
  value may occur less often."""
  value_key, order_key = jax.random.split(key)
  values = jax.random.permutation(value_key, task.alphabet) + 1
  return shuffled(order_key, values[jnp.arange(size.longest) // times], size)


def mean_multiplicity(
  task: ItemTask, key: jax.Array, size: Size, times: int
) -> jax.Array:
  """Returns items drawn uniformly from as many distinct values as make them
  occur `times` times on average: an alphabet that grows with the length."""
  value_key, pick_key = jax.random.split(key)
  values = jax.random.permutation(value_key, task.alphabet) + 1
  numbers = jax.random.uniform(pick_key, (size.longest,))
  return values[below(numbers, distinct(size.lengths[0], times))]


def distinct(length: int | Array, times: int) -> int | Array:
  """Returns the least number of distinct values of which none occurs more than
  `times` times."""
  return -(-length // times)


def shuffled(key: jax.Array, items: jax.Array, size: Size) -> jax.Array:
  """Returns the items that count in random order, the others behind them."""
  place = jnp.arange(size.longest)
  order = jax.random.uniform(key, place.shape)
  return items[jnp.argsort(order + (place >= size.lengths[0]))]
