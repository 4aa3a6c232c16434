"""Sequences that a transducer reads item by item: tokens, text, test sets."""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.errors import check, shown
from lengthgen_jax.tasks.task import Example, Task, below, expect

TOKENS = 250  # a certificate's cases are bytes


@dataclasses.dataclass(frozen=True)
class SequenceTask(Task):
  """Items in, an output for each of them, in the order in which they are read.

  Tokens are the items 0...base - 1 and what else is said, then `⊥` and PAD. A
  task states itself as a transducer over the items: `base`, `states`, `begin`
  and `step`, as the arithmetic tasks do; and it has `names`.

  Items [1, longest] are in the order in which they are read.
  """

  segments = ("items",)
  shared: ClassVar[tuple[int, ...]] = ()
  begin: ClassVar[int] = 0
  anchor: ClassVar[str] = "left"
  takes: ClassVar[str] = ""  # what `parse` reads, in words

  base: ClassVar[int]
  states: ClassVar[tuple[int, ...]]

  def step(self, state, symbols):
    """(next state, output token) from the state and an item, elementwise."""

  @property
  def names(self) -> tuple[str, ...]:
    """Every token but the marks, as people write it; the items first."""

  @property
  def transducer(self):
    return True

  @property
  def strides(self):
    return (1,)

  @property
  def stress(self):
    return tuple(self.test_sets)[1:]

  @functools.cached_property
  def delimiter(self):
    return len(self.names)

  @property
  def start(self):
    return self.delimiter

  @property
  def pad(self):
    return self.delimiter + 1

  @property
  def vocab_size(self):
    return self.delimiter + 2

  def check_tokens(self, field: str, count: int) -> None:
    """UsageError if `count` tokens are more than a certificate can tell."""
    check(
      count <= TOKENS,
      f"{self.section}.{field}={getattr(self, field)!r}: makes {count} tokens,"
      f" at most {TOKENS} are told apart",
    )

  def holds(self, segment: int, left: int, right: int):
    """(operand, place) of a prompt's token."""
    return 0, left if self.anchor == "left" else right

  # Examples.

  def draws(self, longest):
    return longest

  def example(self, numbers, size):
    return self.answered(below(numbers, self.base)[None], size)

  def answered(self, items, size):
    """Of items [1, longest]."""
    length, place = size.lengths[0], jnp.arange(size.longest)
    if self.anchor == "right":
      place = jnp.maximum(length - 1 - place, 0)
    prompt = self.run(items[0][place], length, 0)
    told, count = self.said(self.outputs(items), length)
    return Example(prompt, self.run(told, count, self.target), 0)

  def outputs(self, items):
    """Output tokens [longest] of items [1, longest]."""
    begin = jnp.int32(self.begin)
    return jax.lax.scan(self.step, begin, items.T)[1].astype(jnp.int32)

  def said(self, outputs, length):
    """What is to be said of the outputs, and how many tokens that is."""
    return outputs, length

  # Text.

  def words(self, text: str) -> list[str]:
    return text.split()

  def parse(self, text):
    """Items [1, n] of a typed line, and its length."""
    wanted = f"{self.name} takes {self.takes} like {self.usage}"
    known = {name: i for i, name in enumerate(self.names[: self.base])}
    words = self.words(text)
    expect(words, f"empty line; {wanted}")
    bad = next((word for word in words if word not in known), None)
    expect(bad is None, f"{shown(text)} has {shown(str(bad))}; {wanted}")
    return np.array([[known[word] for word in words]]), [len(words)]

  def typed(self, items, length: int) -> str:
    """What a person types for items [1, L] of which so many count."""
    step = 1 if self.anchor == "left" else -1
    return " ".join(self.symbols(items[0, :length][::step]))

  def symbols(self, ids):
    names = (*self.names, "⊥", "@")
    return [names[int(token)] for token in ids]

  def render(self, ids):
    for token in ids:
      expect(
        0 <= token < self.delimiter,
        f"the model wrote token {token}, which is none of {self.name}",
      )
    return " ".join(self.symbols(ids))


# Test sets: items [1, longest].


def uniform(task, key, size):
  """Items drawn uniformly."""
  return jax.random.randint(key, (1, size.longest), 0, task.base)


def all_equal(task, key, size):
  """One uniform item everywhere."""
  return jnp.broadcast_to(uniform(task, key, size)[:, :1], (1, size.longest))


def lone(task, key, size):
  """One uniform item at a uniform place among items 0."""
  place = jax.random.randint(key, (), 0, size.lengths[0])
  there = jnp.arange(size.longest) == place
  return jnp.where(there, uniform(task, key, size), 0)
