"""Hints of sorting (task hinting paper, section 3.1)."""

import jax.numpy as jnp

from lengthgen_jax.tasks.sorting import Sort, ranks
from lengthgen_jax.tasks.task import below


class OneOutput(Sort):
  """A hint with one scored token, about the items or about one of them."""

  given = 0  # 1 if the item that is asked about comes first

  def ask(self, items, inside, number):
    """An item, by a uniform random number."""
    return items[below(number, inside.sum())]

  def reply(self, items, inside, asked):
    """The output token."""

  def draws(self, longest):
    return 1 + super().draws(longest)

  def example(self, numbers, size):
    length = size.lengths[0]
    items = self.draw_items(numbers[1:], length, size.longest)
    inside = jnp.arange(size.longest) < length
    asked = self.ask(items, inside, numbers[0])
    told = self.reply(items, inside, asked)
    output = jnp.stack([asked, told][1 - self.given :])
    return self.told(items, length, output, 1 + self.given, self.given)


class SuccessorHint(OneOutput):
  """The smallest value greater than a, an item; `⊥` if a is the greatest.

  `5 3 9 3 ⊥ 5` -> `9`; `5 3 9 3 ⊥ 9` -> `⊥`.
  """

  name = "sort_successor"
  given = 1

  def ask(self, items, inside, number):
    if not self.asks_single:
      return super().ask(items, inside, number)
    same = (items[:, None] == items) & inside
    single = inside & (same.sum(axis=1) == 1)
    among = jnp.where(single.any(), single, inside)
    return items[jnp.argmax(jnp.cumsum(among) > below(number, among.sum()))]

  def reply(self, items, inside, asked):
    # `⊥` is greater than every item.
    return jnp.where(inside & (items > asked), items, self.delimiter).min()


class PredecessorHint(OneOutput):
  """The greatest value smaller than a, an item; `⊥` if a is the smallest.

  `5 3 9 3 ⊥ 5` -> `3`; `5 3 9 3 ⊥ 3` -> `⊥`. Ours.
  """

  name = "sort_predecessor"
  given = 1

  def reply(self, items, inside, asked):
    value = jnp.where(inside & (items < asked), items, 0).max()
    return jnp.where(value == 0, self.delimiter, value)


class MinimumHint(OneOutput):
  """The smallest item. Ours.

  `5 3 9 3 ⊥` -> `3`; `7 8 ⊥` -> `7`.
  """

  name = "sort_minimum"

  def reply(self, items, inside, asked):
    return jnp.where(inside, items, self.delimiter).min()


class CountHint(Sort):
  """Two numbers with multiplicities: the rarer one; `⊥` if there is a tie.

  `4 4 7 4 ⊥` -> `7`; `2 5 5 2 ⊥` -> `⊥`. A single item is the rarer one. Only
  an even length can be a tie: all of length 2 are, and `count_ties` of the
  others.
  """

  name = "sort_count"

  def draws(self, longest):
    return 4 + longest

  def example(self, numbers, size):
    length = size.lengths[0]
    rare = below(numbers[0], self.alphabet)
    other = below(numbers[1], self.alphabet - 1)
    common = other + (other >= rare)
    # Multiplicities differ by a gap of the length's own parity; both numbers
    # occur.
    least = 2 - length % 2
    most = jnp.minimum(self.count_gap, length - 2)
    gap = least + 2 * below(numbers[2], jnp.maximum((most - least) // 2, 0) + 1)
    tie = (length % 2 == 0) & ((numbers[3] < self.count_ties) | (least > most))
    gap = jnp.where(tie, 0, gap)
    rare_count = (length - gap) // 2
    # A random order of the items that count; the others stay behind them.
    order = ranks(numbers[4:] + (jnp.arange(size.longest) >= length))
    items = jnp.where(order < rare_count, rare, common)
    lone = jnp.where(rare_count == 0, common, rare)
    answer = jnp.where(gap == 0, self.delimiter, lone + 1)
    return self.told(items + 1, length, answer[None], 1)


class FillHint(Sort):
  """One number repeated, and after `⊥` a part of it: the rest, then `⊥`.

  `6 6 6 ⊥ 6` -> `6 6 ⊥`; `2 2 ⊥` -> `2 2 ⊥`.
  """

  name = "sort_fill"

  def draws(self, longest):
    return 2

  def example(self, numbers, size):
    length = size.lengths[0]
    value = below(numbers[0], self.alphabet) + 1
    part = below(numbers[1], length + 1)
    items = jnp.full(size.longest, value)
    output = jnp.full(size.longest + 1, value).at[length].set(self.delimiter)
    return self.told(items, length, output, length + 1, part)
