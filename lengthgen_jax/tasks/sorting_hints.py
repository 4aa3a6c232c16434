"""Defines the hints of sorting: auxiliary tasks over the same items (task
hinting paper, section 3.1)."""

import jax
import jax.numpy as jnp

from lengthgen_jax.tasks.sorting import Sort, ranks
from lengthgen_jax.tasks.task import Example, Size, below


class OneOutput(Sort):
  """This is the base class of hints with one scored token, about all items or
  about one of them."""

  given = 0  # 1 if the output begins with the queried item

  def ask(
    self, items: jax.Array, inside: jax.Array, number: jax.Array
  ) -> jax.Array:
    """Returns an item, chosen by a uniform random number."""
    return items[below(number, inside.sum())]

  def reply(
    self, items: jax.Array, inside: jax.Array, query: jax.Array
  ) -> jax.Array:
    """Returns the output token for the items `inside` the prompt and the
    queried one."""

  def num_random(self, longest: int) -> int:
    return 1 + super().num_random(longest)

  def example(self, numbers: jax.Array, size: Size) -> Example:
    length = size.lengths[0]
    items = self.draw_items(numbers[1:], length, size.longest)
    inside = jnp.arange(size.longest) < length
    query = self.ask(items, inside, numbers[0])
    answer = self.reply(items, inside, query)
    output = jnp.stack([query, answer][1 - self.given :])
    return self.told(items, length, output, 1 + self.given, self.given)


class SuccessorHint(OneOutput):
  """Asks for the smallest value greater than a, an item; `⊥` if a is the
  greatest.

  `5 3 9 3 ⊥ 5` -> `9`; `5 3 9 3 ⊥ 9` -> `⊥`.
  """

  name = "sort_successor"
  given = 1

  def ask(
    self, items: jax.Array, inside: jax.Array, number: jax.Array
  ) -> jax.Array:
    if not self.asks_single:
      return super().ask(items, inside, number)
    equal = (items[:, None] == items) & inside
    is_single = inside & (equal.sum(axis=1) == 1)
    candidates = jnp.where(is_single.any(), is_single, inside)
    return items[
      jnp.argmax(jnp.cumsum(candidates) > below(number, candidates.sum()))
    ]

  def reply(
    self, items: jax.Array, inside: jax.Array, query: jax.Array
  ) -> jax.Array:
    # `⊥` is greater than every item.
    return jnp.where(inside & (items > query), items, self.delimiter).min()


class PredecessorHint(OneOutput):
  """Asks for the greatest value smaller than a, an item; `⊥` if a is the
  smallest.

  `5 3 9 3 ⊥ 5` -> `3`; `5 3 9 3 ⊥ 3` -> `⊥`. This hint is ours.
  """

  name = "sort_predecessor"
  given = 1

  def reply(
    self, items: jax.Array, inside: jax.Array, query: jax.Array
  ) -> jax.Array:
    value = jnp.where(inside & (items < query), items, 0).max()
    return jnp.where(value == 0, self.delimiter, value)


class MinimumHint(OneOutput):
  """Asks for the smallest item.

  `5 3 9 3 ⊥` -> `3`; `7 8 ⊥` -> `7`. This hint is ours.
  """

  name = "sort_minimum"

  def reply(
    self, items: jax.Array, inside: jax.Array, query: jax.Array
  ) -> jax.Array:
    return jnp.where(inside, items, self.delimiter).min()


class CountHint(Sort):
  """Asks for the rarer one of two numbers that are repeated; `⊥` if there is a
  tie.

  `4 4 7 4 ⊥` -> `7`; `2 5 5 2 ⊥` -> `⊥`. A single item is the rarer one. Only
  an even length can be a tie: all of length 2 are, and `count_ties` of the
  others.
  """

  name = "sort_count"

  def num_random(self, longest: int) -> int:
    return 4 + longest

  def example(self, numbers: jax.Array, size: Size) -> Example:
    length = size.lengths[0]
    rare = below(numbers[0], self.alphabet)
    other = below(numbers[1], self.alphabet - 1)
    common = other + (other >= rare)
    # The gap between the multiplicities has the same parity as the length, and
    # both numbers occur.
    least_gap = 2 - length % 2
    most_gap = jnp.minimum(self.count_gap, length - 2)
    gap = least_gap + 2 * below(
      numbers[2], jnp.maximum((most_gap - least_gap) // 2, 0) + 1
    )
    is_tie = (length % 2 == 0) & (
      (numbers[3] < self.count_ties) | (least_gap > most_gap)
    )
    gap = jnp.where(is_tie, 0, gap)
    rare_count = (length - gap) // 2
    # The items that count are in random order, the others behind them.
    order = ranks(numbers[4:] + (jnp.arange(size.longest) >= length))
    items = jnp.where(order < rare_count, rare, common)
    rarer = jnp.where(rare_count == 0, common, rare)
    answer = jnp.where(gap == 0, self.delimiter, rarer + 1)
    return self.told(items + 1, length, answer[None], 1)


class FillHint(Sort):
  """Asks for the rest of a repeated number, part of which follows `⊥`, and then
  for `⊥`.

  `6 6 6 ⊥ 6` -> `6 6 ⊥`; `2 2 ⊥` -> `2 2 ⊥`.
  """

  name = "sort_fill"

  def num_random(self, longest: int) -> int:
    return 2

  def example(self, numbers: jax.Array, size: Size) -> Example:
    length = size.lengths[0]
    value = below(numbers[0], self.alphabet) + 1
    given = below(numbers[1], length + 1)
    items = jnp.full(size.longest, value)
    output = jnp.full(size.longest + 1, value).at[length].set(self.delimiter)
    return self.told(items, length, output, length + 1, given)
