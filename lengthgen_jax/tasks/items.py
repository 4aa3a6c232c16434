"""Tasks over the integers 1...V: tokens, text, and test sets of any of them."""

import jax
import jax.numpy as jnp

from lengthgen_jax.errors import shown
from lengthgen_jax.tasks.task import Task

BIG = 1 << 30  # sorts behind every item


class ItemTask(Task):
  """Items are the integers 1...V, PAD is 0, `⊥` is V + 1 and `c`, the carry
  marker, V + 2. A subclass has `alphabet`, which is V."""

  segments = ("items",)

  @property
  def vocab_size(self):
    return self.alphabet + 3

  pad = 0

  @property
  def start(self):
    return self.alphabet + 1

  @property
  def delimiter(self):
    return self.alphabet + 1

  def prompt(self, items, length):
    """Tokens of the first `length` items."""
    return self.run(items, length, 0)

  def prompt_size(self, longest):
    return longest

  def output(self, ids, length):
    """Tokens of an output."""
    return self.run(ids, length, self.target)

  # Text: numbers with spaces between them.

  @property
  def usage(self):
    return "5 3 9 3" if self.alphabet >= 9 else "2 1 2"

  def parse(self, text):
    wanted = (
      f"{self.name} takes numbers from 1 to {self.alphabet} like {self.usage}"
    )
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
    return items, [len(items)]

  def render(self, ids):
    for token in ids:
      if not 1 <= token <= self.alphabet:
        raise ValueError(f"the model wrote token {token}, which is no item")
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


def repeats(task, key, size, items: int, times: int):
  """`items` distinct values, each `times` times, and uniform ones, shuffled
  (task hinting paper, section 6)."""
  few_key, rest_key, order_key = jax.random.split(key, 3)
  values = jax.random.permutation(few_key, task.alphabet) + 1
  few = jnp.repeat(values[:items], times)
  found = uniform(task, rest_key, size).at[: len(few)].set(few)
  place = jnp.arange(size.longest)
  order = jax.random.uniform(order_key, place.shape)
  return found[jnp.argsort(order + (place >= size.lengths[0]))]
