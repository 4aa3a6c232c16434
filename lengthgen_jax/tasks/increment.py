"""Defines the task of incrementing a number, and its carry hint (task hinting
paper, section 3.2)."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check_probability
from lengthgen_jax.tasks.items import ItemTask, reverse_items
from lengthgen_jax.tasks.task import (
  Example,
  Ids,
  Size,
  typed_characters,
  uniform_int,
)

# Test sets: each returns items [1, max_length], the least significant digit
# first.


def uniform(task: "Increment", key: jax.Array, size: Size) -> jax.Array:
  """Returns digits drawn uniformly, the most significant one not 0."""
  least = jnp.where(jnp.arange(size.max_length) == 0, 2, 1)
  shape = (1, size.max_length)
  digits = jax.random.randint(key, shape, least, task.base + 1)
  return reverse_items(digits, size.lengths[0])


def nines(task: "Increment", key: jax.Array, size: Size) -> jax.Array:
  """Returns uniform digits that end in a run of 9s, of uniform length."""
  digit_key, run_key = jax.random.split(key)
  run = jax.random.randint(run_key, (), 1, size.lengths[0] + 1)
  place = jnp.arange(size.max_length)
  return jnp.where(place < run, task.base, uniform(task, digit_key, size))


def repeated(task: "Increment", key: jax.Array, size: Size) -> jax.Array:
  """Returns one nonzero digit, repeated everywhere."""
  digit = jax.random.randint(key, (), 2, task.base + 1)
  return jnp.broadcast_to(digit, (1, size.max_length))


@dataclasses.dataclass(frozen=True)
class Increment(ItemTask):
  """Asks for a number plus one, least significant digit first, with one digit
  more than the number has.

  Digit d is item d + 1; `base` is 10. In training the first digit is not 0. The
  state of the transducer is the carry; the last output is what it writes for a
  zero before the number, which is no token of the prompt.

  `1 9 9` -> `0 0 2 0`; `4 2` -> `3 4 0`.

  Attributes:
    nines_share: the fraction of the training examples that are made to end in a
      run of 9s, of uniform length.
  """

  nines_share: float = 0.3

  name: ClassVar[str] = "increment"
  section: ClassVar[str] = "increment"
  unit = "digits"
  test_sets = {"uniform": uniform, "nines": nines, "repeated": repeated}
  stress_sets = ("nines", "repeated")
  of_digits = True
  base = 10
  states = (0, 1)
  initial_state = 1
  transducer = True
  slack = 1
  strides = (1,)
  usage = "1999"
  token_names = ("@", *"0123456789", "⊥", "c")

  def __post_init__(self):
    check_probability("increment.nines_share", self.nines_share)

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    """Returns (next carry, output item) from the carry and one item."""
    total = symbols[0] - self.first_item + state
    return total // 10, total % 10 + self.first_item

  def num_random(self, max_length: int) -> int:
    return 2 + max_length

  def example(self, numbers: jax.Array, size: Size) -> Example:
    length = size.lengths[0]
    digits = uniform_int(numbers[2:], 10)
    digits = digits.at[0].set(1 + uniform_int(numbers[2], 9))
    run = uniform_int(numbers[1], length) + 1
    run = jnp.where(numbers[0] < self.nines_share, run, 0)
    items = reverse_items(digits + self.first_item, length)[None]
    is_nine = jnp.arange(size.max_length) < run
    return self.from_items(jnp.where(is_nine, self.base, items), size)

  def from_items(self, items: jax.Array, size: Size) -> Example:
    length = size.lengths[0]
    outputs, _ = self._sum(items, length)
    prompt = reverse_items(items[0], length)
    return self.make_example(prompt, length, outputs, length + self.slack)

  def _sum(
    self, items: jax.Array, length: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns the items of the result [max_length + 1], least significant
    first, and the carry out of each place, of the same shape."""
    is_digit = jnp.arange(items.shape[1] + self.slack) < length
    padded = jnp.pad(items, ((0, 0), (0, self.slack)))
    return self.transduce(jnp.where(is_digit, padded, self.first_item))

  def parse(self, text: str) -> tuple[np.ndarray, list[int]]:
    expected = f"increment takes digits like {self.usage}"
    digits = typed_characters(text, "0123456789", expected)
    items = [int(digit) + self.first_item for digit in reversed(digits)]
    return np.array([items]), [len(digits)]

  def input_text(self, items: np.ndarray, length: int) -> str:
    return "".join(self.symbols(items[0, :length][::-1]))

  def render(self, ids: Ids) -> str:
    digits = super().render(ids).split()
    return "".join(digits[::-1]).lstrip("0") or "0"


class CarryHint(Increment):
  """Asks for the same digits, each followed by the carry marker `c` and the
  carry into the next place.

  `1 9` -> `0 c 1 2 c 0 0 c 0`; `4 2` -> `3 c 0 4 c 0 0 c 0`.
  """

  name = "increment_carry"
  transducer = False

  def from_items(self, items: jax.Array, size: Size) -> Example:
    length = size.lengths[0]
    digits, carries = self._sum(items, length)
    marker = jnp.full_like(digits, self.delimiter + 1)
    parts = [digits, marker, carries + self.first_item]
    output = jnp.stack(parts, axis=1).reshape(-1)
    prompt = reverse_items(items[0], length)
    return self.make_example(prompt, length, output, 3 * length + 3)
