"""The base class of tasks over a list of items: tokens, text, and test sets
that several of them have."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check, quoted
from lengthgen_jax.tasks.task import Example, Ids, Size, Task


class ItemTask(Task):
  """The base class of tasks whose input is a list of items.

  By default an item is an integer 1...V, which is also its token id; a subclass
  has `base`, which is V. PAD is `@` and the delimiter `⊥`; `c` is not used.
  """

  first_item = 1
  segments = ("items",)
  separator = " "  # between items as people type them; "" ignores spaces

  @functools.cached_property
  def token_names(self) -> tuple[str, ...]:
    return "@", *map(str, range(1, self.base + 1)), "⊥", "c"

  @property
  def item_names(self) -> tuple[str, ...]:
    """Returns every item as people write it."""
    return self.token_names[self.first_item :][: self.base]

  def make_example(
    self,
    items: jax.Array,
    length: int | Array,
    output: jax.Array,
    output_length: int | Array,
    prefix_length: int | Array = 0,
  ) -> Example:
    """Returns the example of the first `length` items [L] as the prompt, and
    the first `output_length` tokens of the array `output` as its output.

    The first `prefix_length` tokens of the output are not scored.
    """
    return Example(
      self.segment_tokens(items, length, 0),
      self.segment_tokens(output, output_length, self.target_segment),
      prefix_length,
    )

  # Text.

  @property
  def usage(self) -> str:
    return self.separator.join(
      self.item_names[i % self.base] for i in (4, 2, 8, 2)
    )

  @property
  def expected_input(self) -> str:
    """Returns what a person types, like "items from 1 to 9"."""
    return f"items from {self.item_names[0]} to {self.item_names[-1]}"

  def parse(self, text: str) -> tuple[np.ndarray, list[int]]:
    expected = f"{self.name} takes {self.expected_input} like {self.usage}"
    ids = {name: id for id, name in enumerate(self.item_names, self.first_item)}
    names = text.split() if self.separator else list("".join(text.split()))
    check(names, f"empty line; {expected}")
    # A number may have leading zeros.
    names = [x if x in ids else x.lstrip("0") or x for x in names]
    for name in names:
      check(name in ids, f"{quoted(text)} has {quoted(name)}; {expected}")
    return np.array([[ids[name] for name in names]], np.int32), [len(names)]

  def input_text(self, items: np.ndarray, lengths: Sequence[int]) -> str:
    return self.separator.join(self.symbols(items[0, : lengths[0]]))

  def render(self, ids: Ids) -> str:
    for token in ids:
      check(
        self.first_item <= token < self.delimiter,
        f"the model wrote token {token}, which is no output of {self.name}",
      )
    return " ".join(self.symbols(ids))


def reverse_items(items: jax.Array, length: int | Array) -> jax.Array:
  """Returns items [..., n] with the first `length` in reverse order; behind
  these, the first item is repeated."""
  place = jnp.maximum(length - 1 - jnp.arange(items.shape[-1]), 0)
  return items[..., place]


# Test sets: each returns items [1, max_length].


def uniform(task: ItemTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns items drawn uniformly."""
  first, end = task.first_item, task.first_item + task.base
  return jax.random.randint(key, (1, size.max_length), first, end)


def all_equal(task: ItemTask, key: jax.Array, size: Size) -> jax.Array:
  """Returns one uniformly drawn item, repeated everywhere."""
  item = uniform(task, key, size)[:, :1]
  return jnp.broadcast_to(item, (1, size.max_length))
