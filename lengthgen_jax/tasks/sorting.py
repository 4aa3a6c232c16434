"""Sorting and its hints (task hinting paper, sections 3 and 4)."""

from reprlib import repr as shown

import jax.numpy as jnp

from lengthgen_jax.tasks.sequence import Example, SequenceTask, below, ranks

BIG = 1 << 30  # sorts behind every item


def ascending(items, length, alphabet: int):
  """`length` of the items in order, by counting; junk behind them."""
  place = jnp.arange(items.shape[0])
  values = jnp.arange(alphabet) + 1
  same = (items[:, None] == values) & (place < length)[:, None]
  upto = jnp.cumsum(same.sum(axis=0))  # items that are at most each value
  return 1 + jnp.sum(upto <= place[:, None], axis=1)


class Sort(SequenceTask):
  """The items in ascending order.

  `5 3 9 3 ⊥` -> `3 3 5 9`; `2 1 ⊥` -> `1 2`.
  """

  name = "sort"

  def draws(self, longest):
    return 2 + 2 * longest + self.alphabet

  def draw_items(self, numbers, length, longest: int):
    """`longest` items: uniform, or (repetition data) from k distinct values.

    k is uniform in 1...length, or 1...V if that is less; `repeat_share` of the
    examples are of this kind.
    """
    alphabet = self.alphabet
    uniform = below(numbers[2 : 2 + longest], alphabet) + 1
    if not self.repeat_share:
      return uniform
    k = below(numbers[1], jnp.minimum(length, alphabet)) + 1
    pick = below(numbers[2 + longest : 2 + 2 * longest], k)
    rank = ranks(numbers[2 + 2 * longest :])  # of every value
    values = jnp.arange(alphabet) + 1
    few = jnp.sum(jnp.where(rank == pick[:, None], values, 0), axis=1)
    return jnp.where(numbers[0] < self.repeat_share, few, uniform)

  def example(self, numbers, length, longest):
    items = self.draw_items(numbers, length, longest)
    return self.answered(items, length)

  def answered(self, items, length):
    return Example(
      delimited(items, length, self.delimiter),
      length + 1,
      ascending(items, length, self.alphabet),
      length,
      length,
    )

  def packed_length(self, longest):
    return 2 * longest + 1

  def outputs(self, length):
    return length

  def parse(self, text):
    wanted = f"sort takes numbers from 1 to {self.alphabet} like 5 3 9 3"
    words = text.split()
    if not words:
      raise ValueError(f"empty line; {wanted}")
    items = []
    for word in words:
      digits = word.lstrip("0") if word.isascii() and word.isdigit() else ""
      short = 0 < len(digits) <= len(str(self.alphabet))
      if not short or int(digits) > self.alphabet:
        raise ValueError(f"{shown(text)} has {shown(word)}; {wanted}")
      items.append(int(digits))
    return items

  def render(self, tokens):
    for token in tokens:
      if not 1 <= token <= self.alphabet:
        raise ValueError(f"the model wrote token {token}, which is no item")
    return " ".join(map(str, tokens))


def delimited(items, length, delimiter: int, after=None):
  """[longest + 1 or + 2] prompt: items, the delimiter, maybe one more token."""
  extra = 1 if after is None else 2
  padded = jnp.pad(items, (0, extra))
  place = jnp.arange(padded.shape[0])
  padded = jnp.where(place == length, delimiter, padded)
  if after is not None:
    padded = jnp.where(place == length + 1, after, padded)
  return padded


class OneOutput(Sort):
  """A hint with one output token, about the items or about one of them."""

  asks_about_an_item = False

  def answer(self, items, inside, asked):
    """The output token."""
    raise NotImplementedError

  def draws(self, longest):
    return 1 + super().draws(longest)

  def example(self, numbers, length, longest):
    items = self.draw_items(numbers[1:], length, longest)
    inside = jnp.arange(longest) < length
    asked = items[below(numbers[0], length)]
    after = asked if self.asks_about_an_item else None
    return Example(
      delimited(items, length, self.delimiter, after),
      length + (2 if self.asks_about_an_item else 1),
      self.answer(items, inside, asked)[None],
      1,
      length,
    )

  def packed_length(self, longest):
    return longest + (3 if self.asks_about_an_item else 2)


class SuccessorHint(OneOutput):
  """The smallest value greater than a, an item; `⊥` if a is the greatest.

  `5 3 9 3 ⊥ 5` -> `9`; `5 3 9 3 ⊥ 9` -> `⊥`.
  """

  name = "sort_successor"
  asks_about_an_item = True

  def answer(self, items, inside, asked):
    greater = inside & (items > asked)
    value = jnp.where(greater, items, BIG).min()
    return jnp.where(value == BIG, self.delimiter, value)


class PredecessorHint(OneOutput):
  """The greatest value smaller than a, an item; `⊥` if a is the smallest.

  `5 3 9 3 ⊥ 5` -> `3`; `5 3 9 3 ⊥ 3` -> `⊥`. Ours.
  """

  name = "sort_predecessor"
  asks_about_an_item = True

  def answer(self, items, inside, asked):
    smaller = inside & (items < asked)
    value = jnp.where(smaller, items, 0).max()
    return jnp.where(value == 0, self.delimiter, value)


class MinimumHint(OneOutput):
  """The smallest item. Ours.

  `5 3 9 3 ⊥` -> `3`; `7 8 ⊥` -> `7`.
  """

  name = "sort_minimum"

  def answer(self, items, inside, asked):
    return jnp.where(inside, items, BIG).min()


class CountHint(SequenceTask):
  """Two numbers with multiplicities: the rarer one; `⊥` if there is a tie.

  `4 4 7 4 ⊥` -> `7`; `2 5 5 2 ⊥` -> `⊥`. A single item is the rarer one. Only
  an even length can be a tie: all of length 2 are, and `count_ties` of the
  others.
  """

  name = "sort_count"

  def draws(self, longest):
    return 4 + longest

  def example(self, numbers, length, longest):
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
    place = jnp.arange(longest)
    # A random order of the items that count; the others stay behind them.
    order = ranks(numbers[4:] + (place >= length))
    items = jnp.where(order < rare_count, rare, common)
    lone = jnp.where(rare_count == 0, common, rare)
    answer = jnp.where(gap == 0, self.delimiter, lone + 1)
    return Example(
      delimited(items + 1, length, self.delimiter),
      length + 1,
      answer[None],
      1,
      length,
    )

  def packed_length(self, longest):
    return longest + 2


class FillHint(SequenceTask):
  """One number repeated, and after `⊥` a part of it: the rest, then `⊥`.

  `6 6 6 ⊥ 6` -> `6 6 ⊥`; `2 2 ⊥` -> `2 2 ⊥`.
  """

  name = "sort_fill"

  def draws(self, longest):
    return 2

  def example(self, numbers, length, longest):
    value = below(numbers[0], self.alphabet) + 1
    part = below(numbers[1], length + 1)
    place = jnp.arange(2 * longest + 1)
    prompt = jnp.where(place == length, self.delimiter, value)
    rest = length - part
    output = jnp.where(jnp.arange(longest + 1) < rest, value, self.delimiter)
    return Example(prompt, length + 1 + part, output, rest + 1, length)

  def packed_length(self, longest):
    return 2 * longest + 2
