"""The task of sorting and its hints, auxiliary tasks with the same
vocabulary (task hinting paper, sections 3 and 4)."""

import abc
import dataclasses
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp

from lengthgen_jax.coordinates import Array
from lengthgen_jax.sections import INT32, Fraction, Range
from lengthgen_jax.tasks.items import (
  ItemTask,
  all_equal,
  reverse_items,
  uniform,
)
from lengthgen_jax.tasks.task import Draw, Example, Size, Variants, uniform_int

AFTER_ITEMS = 1 << 30  # a value that sorts behind every item

# Test sets.


def ascending(task: ItemTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns uniform items in ascending order."""
  inside = jnp.arange(size.max_length) < size.lengths[0]
  return jnp.sort(jnp.where(inside, uniform(task, key, size), AFTER_ITEMS))


def descending(task: ItemTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns uniform items in descending order."""
  return reverse_items(ascending(task, key, size), size.lengths[0])


def two_values(task: ItemTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns items drawn from two distinct values, which are random."""
  numbers = jax.random.uniform(key, (size.max_length + 1, 2))
  one = uniform_int(numbers[0, 0], task.base)
  offset = 1 + uniform_int(numbers[0, 1], task.base - 1)
  other = (one + offset) % task.base
  return jnp.where(numbers[1:, 0] < 0.5, one, other)[None] + 1


def near_ties(task: ItemTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns items drawn from three consecutive values."""
  numbers = jax.random.uniform(key, (size.max_length + 1,))
  num_values = min(3, task.base)
  first = uniform_int(numbers[0], task.base - num_values + 1)
  return first + uniform_int(numbers[1:], num_values)[None] + 1


def repeats(
  task: ItemTask, key: jax.Array, size: Size, num_values: int, times: int
) -> jax.Array:
  """Returns `num_values` distinct values, each `times` times, and uniform items
  up to the length, in random order (task hinting paper, section 6)."""
  value_key, uniform_key, order_key = jax.random.split(key, 3)
  values = jax.random.permutation(value_key, task.base) + 1
  repeated = jnp.repeat(values[:num_values], times)
  items = uniform(task, uniform_key, size)[0]
  items = items.at[: len(repeated)].set(repeated)
  # A random order of the items within the length, and the others behind them.
  place = jnp.arange(size.max_length)
  order = jax.random.uniform(order_key, place.shape)
  return items[jnp.argsort(order + (place >= size.lengths[0]))][None]


def ranks(numbers: jax.Array) -> jax.Array:
  """Returns the rank of each of numbers [n] in ascending order, from 0."""
  # Numbers are compared in pairs, because XLA takes seconds to compile a sort.
  index = jnp.arange(numbers.shape[0])
  precedes = (numbers < numbers[:, None]) | (
    (numbers == numbers[:, None]) & (index < index[:, None])
  )
  return jnp.sum(precedes, axis=1)


@dataclasses.dataclass(frozen=True)
class Sort(ItemTask):
  """Asks for the items in ascending order.

  `5 3 9 3` -> `3 3 5 9`; `2 1` -> `1 2`.
  """

  # V, the number of different items
  alphabet: Annotated[
    int, Range("must be at least 2 and at most 65536", 2, 1 << 16)
  ] = 32
  # the fraction of the training examples that draw their items from k distinct
  # values, where k is uniform or log_uniform: then small k, and so values that
  # occur many times, are more frequent
  repeat_share: Fraction = 0.1
  repeat_values: Literal["uniform", "log_uniform"] = "uniform"
  # of the count hint: the most by which one value outnumbers the other, and the
  # fraction of ties among the examples of an even length above 2
  count_gap: Annotated[int, Range("must be at least 2", 2, INT32)] = 3
  count_ties: Fraction = 0.5
  # of the successor hint: whether the queried item is one that occurs once, if
  # any does; then the answer, unless it is `⊥`, is also the next token of the
  # sorted list (ours)
  asks_single: bool = False

  name = "sort"
  test_sets = {
    "uniform": uniform,
    "repeats": repeats,
    "sorted": ascending,
    "reversed": descending,
    "all_equal": all_equal,
    "two_values": two_values,
    "near_ties": near_ties,
  }
  stress_sets = ("all_equal", "two_values", "near_ties", "sorted", "reversed")

  @property
  def base(self) -> int:
    return self.alphabet

  def draw_items(self, draw: Draw, size: Size) -> jax.Array:
    """Returns the items [max_length] of a training example."""
    alphabet, max_length = self.alphabet, size.max_length
    numbers = draw(2 + 2 * max_length + alphabet)
    uniform_numbers, rank_numbers, value_numbers = jnp.split(
      numbers[2:], (max_length, 2 * max_length)
    )
    uniform_items = uniform_int(uniform_numbers, alphabet) + 1
    if not self.repeat_share:
      return uniform_items
    most = jnp.minimum(size.lengths[0], alphabet)
    if self.repeat_values == "uniform":
      k = uniform_int(numbers[1], most) + 1
    else:  # [k, k + 1) is drawn as often as it is wide in the logarithm
      k = jnp.exp(numbers[1] * jnp.log(most + 1.0)).astype(jnp.int32)
      k = jnp.clip(k, 1, most)
    # The k values are the first ones in a random order of all values.
    item_ranks = uniform_int(rank_numbers, k)
    value_ranks = ranks(value_numbers)
    values = jnp.arange(alphabet) + 1
    is_value = value_ranks == item_ranks[:, None]
    repeated = jnp.sum(jnp.where(is_value, values, 0), axis=1)
    return jnp.where(numbers[0] < self.repeat_share, repeated, uniform_items)

  def example(self, draw: Draw, size: Size) -> Example:
    return self.from_items(self.draw_items(draw, size)[None], size)

  def from_items(self, items: jax.Array, size: Size) -> Example:
    items, length = items[0], size.lengths[0]
    index, values = jnp.arange(size.max_length), jnp.arange(self.alphabet) + 1
    is_value = (items[:, None] == values) & (index < length)[:, None]
    # A counting sort: for each value, how many items are not greater.
    cumulative_counts = jnp.cumsum(is_value.sum(axis=0))
    output = 1 + jnp.sum(cumulative_counts <= index[:, None], axis=1)
    return self.make_example(items, length, output, length)

  def needed(self, inputs, delimiter_index, row, target):
    # Copies of the last output show whether there is one more of it to write,
    # copies of the target which value comes next.
    return (inputs == inputs[row]) | (inputs == target)

  def variants(self, test_set: str, section: Any, length: int) -> Variants:
    # Those that fit the length and the alphabet.
    if test_set != "repeats":
      return [(test_set, ())]
    num_values = section.repeated_items
    return [
      (f"repeats_{num_values}x{times}", (num_values, times))
      for times in section.repetitions
      if num_values * times <= length and num_values <= self.alphabet
    ]


class OneTokenHint(Sort):
  """The base class of hints whose answer is one token.

  The question is about all items, or about one of them, the queried item. A
  subclass has `name` and `answer`.
  """

  # 1 if the output begins with the queried item, which is not scored, else 0.
  prefix_length = 0

  def choose_query(self, items: Array, inside: Array, number: Array) -> Array:
    """Returns the queried item, which a uniform number in [0, 1) chooses."""
    return items[uniform_int(number, inside.sum())]

  @abc.abstractmethod
  def answer(self, items: Array, inside: Array, query: Array) -> Array:
    """Returns the answer token about items [max_length], those that `inside`
    marks, and the queried item."""

  def example(self, draw: Draw, size: Size) -> Example:
    length = size.lengths[0]
    items = self.draw_items(lambda n: draw(1 + n)[1:], size)
    inside = jnp.arange(size.max_length) < length
    query = self.choose_query(items, inside, draw(1)[0])
    answer = self.answer(items, inside, query)
    output = jnp.stack([query, answer][1 - self.prefix_length :])
    return self.make_example(
      items, length, output, len(output), self.prefix_length
    )


class SuccessorHint(OneTokenHint):
  """Asks for the smallest value that is greater than the queried item; `⊥` if
  that is the greatest item.

  `5 3 9 3 ⊥ 5` -> `9`; `5 3 9 3 ⊥ 9` -> `⊥`.
  """

  name = "sort_successor"
  prefix_length = 1

  def choose_query(self, items: Array, inside: Array, number: Array) -> Array:
    if not self.asks_single:
      return super().choose_query(items, inside, number)
    equal = (items[:, None] == items) & inside
    is_single = inside & (equal.sum(axis=1) == 1)
    candidates = jnp.where(is_single.any(), is_single, inside)
    chosen = uniform_int(number, candidates.sum())
    return items[jnp.argmax(jnp.cumsum(candidates) > chosen)]

  def answer(self, items: Array, inside: Array, query: Array) -> Array:
    # `⊥` is greater than every item.
    return jnp.where(inside & (items > query), items, self.delimiter).min()


class PredecessorHint(OneTokenHint):
  """Asks for the greatest value that is smaller than the queried item; `⊥` if
  that is the smallest item.

  `5 3 9 3 ⊥ 5` -> `3`; `5 3 9 3 ⊥ 3` -> `⊥`. This hint is ours.
  """

  name = "sort_predecessor"
  prefix_length = 1

  def answer(self, items: Array, inside: Array, query: Array) -> Array:
    value = jnp.where(inside & (items < query), items, 0).max()
    return jnp.where(value == 0, self.delimiter, value)


class MinimumHint(OneTokenHint):
  """Asks for the smallest item.

  `5 3 9 3 ⊥` -> `3`; `7 8 ⊥` -> `7`. This hint is ours.
  """

  name = "sort_minimum"

  def answer(self, items: Array, inside: Array, query: Array) -> Array:
    return jnp.where(inside, items, self.delimiter).min()


class CountHint(Sort):
  """Asks which of two repeated values occurs less often; `⊥` if there is a tie.

  `4 4 7 4 ⊥` -> `7`; `2 5 5 2 ⊥` -> `⊥`. At length 1 the only item is the
  answer. Only examples of an even length can be ties: all of length 2 are, and
  a fraction `count_ties` of the others.
  """

  name = "sort_count"

  def example(self, draw: Draw, size: Size) -> Example:
    length, numbers = size.lengths[0], draw(4 + size.max_length)
    rare = uniform_int(numbers[0], self.alphabet)
    other = uniform_int(numbers[1], self.alphabet - 1)
    common = other + (other >= rare)
    # The gap between the multiplicities has the same parity as the length, and
    # both values occur.
    least_gap = 2 - length % 2
    most_gap = jnp.minimum(self.count_gap, length - 2)
    num_gaps = jnp.maximum((most_gap - least_gap) // 2, 0) + 1
    gap = least_gap + 2 * uniform_int(numbers[2], num_gaps)
    is_tie = (length % 2 == 0) & (
      (numbers[3] < self.count_ties) | (least_gap > most_gap)
    )
    gap = jnp.where(is_tie, 0, gap)
    rare_count = (length - gap) // 2
    # A random order of the items within the length, and the others behind them.
    order = ranks(numbers[4:] + (jnp.arange(size.max_length) >= length))
    items = jnp.where(order < rare_count, rare, common)
    rarer = jnp.where(rare_count == 0, common, rare)
    answer = jnp.where(gap == 0, self.delimiter, rarer + 1)
    return self.make_example(items + 1, length, answer[None], 1)


class FillHint(Sort):
  """Asks to repeat after `⊥` what stands before it, copies of one value, and to
  end with another `⊥`; the first copies, from none to all of them, are given.

  `6 6 6 ⊥ 6` -> `6 6 ⊥`; `2 2 ⊥` -> `2 2 ⊥`.
  """

  name = "sort_fill"

  def example(self, draw: Draw, size: Size) -> Example:
    length, numbers = size.lengths[0], draw(2)
    value = uniform_int(numbers[0], self.alphabet) + 1
    prefix_length = uniform_int(numbers[1], length + 1)
    items = jnp.full(size.max_length, value)
    output = jnp.full(size.max_length + 1, value)
    output = output.at[length].set(self.delimiter)
    return self.make_example(items, length, output, length + 1, prefix_length)
