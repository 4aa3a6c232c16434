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
from lengthgen_jax.tasks.items import ItemTask
from lengthgen_jax.tasks.task import (
  Example,
  Ids,
  Size,
  typed_characters,
  uniform_int,
)

# Test sets: each returns items [1, max_length], digits plus one.


def uniform(task: "Increment", key: jax.Array, size: Size) -> jax.Array:
  """Returns digits drawn uniformly, the first one not 0."""
  least = jnp.where(jnp.arange(size.max_length) == 0, 2, 1)
  return jax.random.randint(key, (1, size.max_length), least, task.base + 1)


def nines(task: "Increment", key: jax.Array, size: Size) -> jax.Array:
  """Returns uniform digits with a run of 9s of random length at the end."""
  digit_key, run_key = jax.random.split(key)
  length = size.lengths[0]
  run = jax.random.randint(run_key, (), 1, length + 1)
  place = length - 1 - jnp.arange(size.max_length)
  return jnp.where(place < run, 10, uniform(task, digit_key, size))


def repeated(task: "Increment", key: jax.Array, size: Size) -> jax.Array:
  """Returns one digit, which is not 0, repeated everywhere."""
  digit = jax.random.randint(key, (), 2, task.base + 1)
  return jnp.broadcast_to(digit, (1, size.max_length))


@dataclasses.dataclass(frozen=True)
class Increment(ItemTask):
  """Asks for a number plus one, least significant digit first, one digit more.

  Digit d is item d + 1, so V is 10. The first digit is not 0. As a transducer
  its state is the carry.

  `1 9 9` -> `0 0 2 0`; `4 2` -> `3 4 0`.

  Attributes:
    nines_share: part of the examples that end in a run of 9s.
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
  strides = (1,)
  usage = "1999"
  token_names = ("@", *"0123456789", "⊥", "c")

  def __post_init__(self):
    check_probability("increment.nines_share", self.nines_share)

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    """Returns (next carry, output digit)."""
    total = symbols[0] + state
    return total // 10, total % 10

  def num_random(self, max_length: int) -> int:
    return 2 + max_length

  def example(self, numbers: jax.Array, size: Size) -> Example:
    length = size.lengths[0]
    digits = uniform_int(numbers[2:], 10)
    digits = digits.at[0].set(1 + uniform_int(numbers[2], 9))
    run = uniform_int(numbers[1], length) + 1
    run = jnp.where(numbers[0] < self.nines_share, run, 0)
    place = length - 1 - jnp.arange(size.max_length)  # 0 is least significant
    return self.from_items(jnp.where(place < run, 9, digits)[None] + 1, size)

  def from_items(self, items: jax.Array, size: Size) -> Example:
    length = size.lengths[0]
    digits, _ = self._sum(items[0], length)
    return self.make_example(items[0], length, digits + 1, length + 1)

  def _sum(
    self, items: jax.Array, length: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns the digits of the result [max_length + 1], least significant
    first, and the carry out of each place."""
    place = jnp.arange(items.shape[0] + 1)
    index = jnp.clip(length - 1 - place, 0, items.shape[0] - 1)
    digits = jnp.where(place < length, items[index] - 1, 0)
    return self.transduce(digits[None])

  def parse(self, text: str) -> tuple[np.ndarray, list[int]]:
    expected = f"increment takes digits like {self.usage}"
    digits = typed_characters(text, "0123456789", expected)
    return np.array([[int(digit) + 1 for digit in digits]]), [len(digits)]

  def input_text(self, items: np.ndarray, length: int) -> str:
    return "".join(self.symbols(items[0, :length]))

  def render(self, ids: Ids) -> str:
    digits = super().render(ids).split()
    return "".join(digits[::-1]).lstrip("0") or "0"


class CarryHint(Increment):
  """Asks for the same output with the carry marker and the carry into the next
  place after each digit.

  `1 9 ⊥` -> `0 c 1 2 c 0 0 c 0`; `4 2 ⊥` -> `3 c 0 4 c 0 0 c 0`.
  """

  name = "increment_carry"

  def from_items(self, items: jax.Array, size: Size) -> Example:
    length = size.lengths[0]
    digits, carries = self._sum(items[0], length)
    # The marker is stored less one, as the digits are.
    marker = jnp.full_like(digits, self.delimiter)
    output = jnp.stack([digits, marker, carries], axis=1).reshape(-1) + 1
    return self.make_example(items[0], length, output, 3 * length + 3)
