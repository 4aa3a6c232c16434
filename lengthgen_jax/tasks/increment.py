"""The task of incrementing a number, and its carry hint (task hinting paper,
section 3.2)."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from lengthgen_jax.coordinates import Array
from lengthgen_jax.sections import Fraction
from lengthgen_jax.tasks.automata import SequenceTask
from lengthgen_jax.tasks.items import reverse_items
from lengthgen_jax.tasks.numbers import number_text
from lengthgen_jax.tasks.task import Draw, Example, Ids, Size, uniform_int

# Test sets: the least significant digit comes first.


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
class Increment(SequenceTask):
  """Asks for a number plus one, least significant digit first, with one digit
  more than the number has.

  Digit d is item d + 1. In training the first digit is not 0. The state of the
  transducer is the carry; the last output is what it writes for a zero before
  the number, which is no token of the prompt.

  `1 9 9` -> `0 0 2 0`; `4 2` -> `3 4 0`.
  """

  # the fraction of the training examples that are made to end in a run of 9s,
  # of uniform length
  nines_share: Fraction = 0.3

  name = "increment"
  unit = "digits"
  test_sets = {"uniform": uniform, "nines": nines, "repeated": repeated}
  of_digits = True
  states = (0, 1)
  initial_state = 1
  slack = 1
  anchor = "right"
  first_item = 1
  item_and_output_names = tuple("0123456789")
  token_names = ("@", *item_and_output_names, "⊥", "c")
  separator = ""
  expected_input, usage = "digits", "1999"

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    total = symbols[0] - self.first_item + state
    return total // 10, total % 10 + self.first_item

  def example(self, draw: Draw, size: Size) -> Example:
    length, numbers = size.lengths[0], draw(2 + size.max_length)
    digits = uniform_int(numbers[2:], 10)
    digits = digits.at[0].set(1 + uniform_int(numbers[2], 9))
    run = uniform_int(numbers[1], length) + 1
    run = jnp.where(numbers[0] < self.nines_share, run, 0)
    items = reverse_items(digits + self.first_item, length)[None]
    is_nine = jnp.arange(size.max_length) < run
    return self.from_items(jnp.where(is_nine, self.base, items), size)

  def render(self, ids: Ids) -> str:
    return number_text(super().render(ids).replace(" ", ""))


class CarryHint(Increment):
  """Asks for the same digits, each followed by the carry marker `c` and the
  carry into the next place.

  `1 9` -> `0 c 1 2 c 0 0 c 0`; `4 2` -> `3 c 0 4 c 0 0 c 0`.
  """

  name = "increment_carry"
  transducer = False

  def from_items(self, items: jax.Array, size: Size) -> Example:
    length = size.lengths[0]
    digits, carries = self.read(items, length)
    marker = jnp.full_like(digits, self.delimiter + 1)
    parts = [digits, marker, carries + self.first_item]
    output = jnp.stack(parts, axis=1).reshape(-1)
    prompt = reverse_items(items[0], length)
    return self.make_example(prompt, length, output, 3 * length + 3)
