"""Defines the base class of tasks whose items a transducer reads one by one:
tokens, text, and test sets."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check, quoted
from lengthgen_jax.tasks.task import Example, Size, Task, below, expect

TOKENS = 250  # the most tokens, because a certificate's cases are bytes


@dataclasses.dataclass(frozen=True)
class SequenceTask(Task):
  """This is the base class of tasks with one output for each item, in the order
  in which items are read.

  Tokens are the items 0...base - 1 and the other outputs, then `⊥` and PAD. A
  task states itself as a transducer over the items: `base`, `states`, `begin`
  and `step`, as the arithmetic tasks do; and it has `names`.

  Items [1, longest] are in the order in which they are read.
  """

  segments = ("items",)
  shared_operands: ClassVar[tuple[int, ...]] = ()
  initial_state: ClassVar[int] = 0
  anchor: ClassVar[str] = "left"
  takes: ClassVar[str] = ""  # what `parse` reads, in words

  base: ClassVar[int]
  states: ClassVar[tuple[int, ...]]

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    """Returns (next state, output token) from the state and an item,
    elementwise."""

  @property
  def token_names(self) -> tuple[str, ...]:
    """Returns every token but the marks, as people write it; the items come
    first."""

  @property
  def transducer(self) -> bool:
    return True

  @property
  def strides(self) -> tuple[int, ...]:
    return (1,)

  @property
  def stress_sets(self) -> tuple[str, ...]:
    return tuple(self.test_sets)[1:]

  @functools.cached_property
  def delimiter(self) -> int:
    return len(self.token_names)

  @property
  def start(self) -> int:
    return self.delimiter

  @property
  def pad(self) -> int:
    return self.delimiter + 1

  @property
  def vocab_size(self) -> int:
    return self.delimiter + 2

  def check_tokens(self, field: str, count: int) -> None:
    """Raises UsageError if `count` tokens are more than a certificate can
    distinguish."""
    check(
      count <= TOKENS,
      f"{self.section}.{field}={getattr(self, field)!r}: makes {count} tokens,"
      f" at most {TOKENS} are told apart",
    )

  def operand_place(
    self, segment: int, left: int, right: int
  ) -> tuple[int, int]:
    """Returns (operand, place) of a prompt's token."""
    return 0, left if self.anchor == "left" else right

  # Examples.

  def num_random(self, longest: int) -> int:
    return longest

  def example(self, numbers: jax.Array, size: Size) -> Example:
    return self.from_items(below(numbers, self.base)[None], size)

  def from_items(self, items: jax.Array, size: Size) -> Example:
    """Returns the example of items [1, longest]."""
    length, place = size.lengths[0], jnp.arange(size.longest)
    if self.anchor == "right":
      place = jnp.maximum(length - 1 - place, 0)
    prompt = self.segment_tokens(items[0][place], length, 0)
    output, count = self.said(self.outputs(items), length)
    return Example(
      prompt, self.segment_tokens(output, count, self.target_segment), 0
    )

  def outputs(self, items: jax.Array) -> jax.Array:
    """Returns the output tokens [longest] of items [1, longest]."""
    begin = jnp.int32(self.initial_state)
    return jax.lax.scan(self.step, begin, items.T)[1].astype(jnp.int32)

  def said(
    self, outputs: jax.Array, length: int | Array
  ) -> tuple[jax.Array, int | Array]:
    """Returns those of the outputs that the model is to write, and how many
    they are."""
    return outputs, length

  # Text.

  def words(self, text: str) -> list[str]:
    """Splits a typed line into items."""
    return text.split()

  def parse(self, text: str) -> tuple[np.ndarray, list[int]]:
    """Returns the items [1, n] of a typed line, and its length.

    Raises:
      ValueError: the line is empty or has a word that is no item.
    """
    expected = f"{self.name} takes {self.takes} like {self.usage}"
    numbers = {name: i for i, name in enumerate(self.token_names[: self.base])}
    words = self.words(text)
    expect(words, f"empty line; {expected}")
    unknown = next((word for word in words if word not in numbers), None)
    expect(
      unknown is None, f"{quoted(text)} has {quoted(str(unknown))}; {expected}"
    )
    return np.array([[numbers[word] for word in words]]), [len(words)]

  def input_text(self, items: np.ndarray, length: int) -> str:
    """Returns the text that a person types for the first `length` of the items
    [1, L]."""
    step = 1 if self.anchor == "left" else -1
    return " ".join(self.symbols(items[0, :length][::step]))

  def symbols(self, ids: Sequence[int] | np.ndarray) -> list[str]:
    names = (*self.token_names, "⊥", "@")
    return [names[int(token)] for token in ids]

  def render(self, ids: Sequence[int] | np.ndarray) -> str:
    for token in ids:
      expect(
        0 <= token < self.delimiter,
        f"the model wrote token {token}, which is none of {self.name}",
      )
    return " ".join(self.symbols(ids))


# Test sets: each returns items [1, longest].


def uniform(task: SequenceTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns items drawn uniformly."""
  return jax.random.randint(key, (1, size.longest), 0, task.base)


def all_equal(task: SequenceTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns one uniform item, repeated everywhere."""
  return jnp.broadcast_to(uniform(task, key, size)[:, :1], (1, size.longest))


def lone(task: SequenceTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns one uniform item at a uniform place among items 0."""
  place = jax.random.randint(key, (), 0, size.lengths[0])
  is_lone = jnp.arange(size.longest) == place
  return jnp.where(is_lone, uniform(task, key, size), 0)
