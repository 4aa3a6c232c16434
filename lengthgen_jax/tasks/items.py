"""Tasks over the integers 1...V: tokens, text, and test sets of any of them."""

import jax
import jax.numpy as jnp

from lengthgen_jax.errors import shown
from lengthgen_jax.tasks.task import Example, Task, below, expect

BIG = 1 << 30  # sorts behind every item


class ItemTask(Task):
  """Items are the integers 1...V, PAD is 0, `⊥` is V + 1 and `c`, the carry
  marker, V + 2. A subclass has `alphabet`, which is V."""

  segments = ("items",)
  pad = 0

  @property
  def vocab_size(self):
    return self.alphabet + 3

  @property
  def delimiter(self):
    return self.alphabet + 1

  start = delimiter

  def told(self, items, length, output, size, given=0) -> Example:
    """The first `length` items, and `size` tokens of output."""
    prompt = self.run(items, length, 0)
    return Example(prompt, self.run(output, size, self.target), given)

  def symbols(self, ids):
    marks = {self.pad: "@", self.delimiter: "⊥", self.delimiter + 1: "c"}
    return [marks.get(int(token), str(int(token))) for token in ids]

  # Text: numbers with spaces between them.

  @property
  def usage(self):
    return "5 3 9 3" if self.alphabet >= 9 else "2 1 2"

  def parse(self, text):
    wanted = (
      f"{self.name} takes numbers from 1 to {self.alphabet} like {self.usage}"
    )
    words = text.split()
    expect(words, f"empty line; {wanted}")
    for word in words:
      digits = word.lstrip("0") if word.isascii() and word.isdigit() else ""
      short = 0 < len(digits) <= len(str(self.alphabet))
      expect(
        short and int(digits) <= self.alphabet,
        f"{shown(text)} has {shown(word)}; {wanted}",
      )
    return [int(word.lstrip("0")) for word in words], [len(words)]

  def render(self, ids):
    what = "digit" if self.of_digits else "item"
    for token in ids:
      is_item = 1 <= token <= self.alphabet
      expect(is_item, f"the model wrote token {token}, which is no {what}")
    return " ".join(map(str, ids))


def uniform(task, key, size):
  """Items drawn uniformly."""
  return jax.random.randint(key, (size.longest,), 1, task.alphabet + 1)


def ascending(task, key, size):
  """Uniform items in order."""
  inside = jnp.arange(size.longest) < size.lengths[0]
  return jnp.sort(jnp.where(inside, uniform(task, key, size), BIG))


def descending(task, key, size):
  """Uniform items in reverse order."""
  last = size.lengths[0] - 1 - jnp.arange(size.longest)
  return ascending(task, key, size)[jnp.maximum(last, 0)]


def all_equal(task, key, size):
  """One uniform item everywhere."""
  return jnp.broadcast_to(uniform(task, key, size)[0], (size.longest,))


def two_values(task, key, size):
  """Two distinct values in random order."""
  draw, alphabet = jax.random.uniform(key, (size.longest + 1, 2)), task.alphabet
  one = below(draw[0, 0], alphabet)
  other = (one + 1 + below(draw[0, 1], alphabet - 1)) % alphabet
  return jnp.where(draw[1:, 0] < 0.5, one, other) + 1


def near_ties(task, key, size):
  """Three consecutive values, so that many items are equal or nearly so."""
  draw, few = (
    jax.random.uniform(key, (size.longest + 1,)),
    min(3, task.alphabet),
  )
  first = below(draw[0], task.alphabet - few + 1)
  return first + below(draw[1:], few) + 1


def repeats(task, key, size, items: int, times: int):
  """`items` distinct values, each `times` times, and uniform ones, shuffled
  (task hinting paper, section 6)."""
  few_key, rest_key, order_key = jax.random.split(key, 3)
  values = jax.random.permutation(few_key, task.alphabet) + 1
  few = jnp.repeat(values[:items], times)
  found = uniform(task, rest_key, size).at[: len(few)].set(few)
  return shuffled(order_key, found, size)


def multiplicity(task, key, size, times: int):
  """Every value that occurs occurs `times` times, one of them maybe less
  often; in random order."""
  value_key, order_key = jax.random.split(key)
  values = jax.random.permutation(value_key, task.alphabet) + 1
  return shuffled(order_key, values[jnp.arange(size.longest) // times], size)


def mean_multiplicity(task, key, size, times: int):
  """Drawn uniformly from as many distinct values as make them occur `times`
  times on average: an alphabet that grows with the length."""
  value_key, pick_key = jax.random.split(key)
  values = jax.random.permutation(value_key, task.alphabet) + 1
  numbers = jax.random.uniform(pick_key, (size.longest,))
  return values[below(numbers, distinct(size.lengths[0], times))]


def distinct(length, times: int):
  """How many values that is: the fewest that do not occur more often."""
  return -(-length // times)


def shuffled(key, items, size):
  """The items that count in random order, the others behind them."""
  place = jnp.arange(size.longest)
  order = jax.random.uniform(key, place.shape)
  return items[jnp.argsort(order + (place >= size.lengths[0]))]
