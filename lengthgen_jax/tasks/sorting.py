"""Defines the task of sorting (task hinting paper, sections 3 and 4)."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check, check_probability
from lengthgen_jax.tasks import items as sets
from lengthgen_jax.tasks.items import ItemTask
from lengthgen_jax.tasks.task import Example, Size, below


def ranks(number: jax.Array) -> jax.Array:
  """Returns the place of each number in ascending order (a random permutation).

  Numbers are compared in pairs, because XLA takes seconds to compile a sort.
  """
  i = jnp.arange(number.shape[0])
  precedes = (number < number[:, None]) | (
    (number == number[:, None]) & (i < i[:, None])
  )
  return jnp.sum(precedes, axis=1)


@dataclasses.dataclass(frozen=True)
class Sort(ItemTask):
  """Asks for the items in ascending order.

  `5 3 9 3` -> `3 3 5 9`; `2 1` -> `1 2`.

  Attributes:
    alphabet: V, the number of different items.
    repeat_share: part of the examples that draw from few distinct values.
    count_gap: count hint: most by which one number outnumbers the other.
    count_ties: count hint: part of the even lengths at which they tie.
    asks_single: successor hint: ask for items that occur once (if any does),
      after which sorting has the same token (ours).
  """

  alphabet: int = 32
  repeat_share: float = 0.1
  count_gap: int = 3
  count_ties: float = 0.5
  asks_single: bool = False

  name: ClassVar[str] = "sort"
  section: ClassVar[str] = "sort"
  test_sets: ClassVar[dict] = {
    "uniform": sets.uniform,
    "repeats": sets.repeats,
    "sorted": sets.ascending,
    "reversed": sets.descending,
    "all_equal": sets.all_equal,
    "multiplicity": sets.multiplicity,
    "mean_multiplicity": sets.mean_multiplicity,
    "two_values": sets.two_values,
    "near_ties": sets.near_ties,
  }
  stress_sets = ("all_equal", "two_values", "near_ties", "sorted", "reversed")

  def __post_init__(self):
    for name, most in (("alphabet", 1 << 16), ("count_gap", 1 << 31)):
      value = getattr(self, name)
      check(
        2 <= value <= most,
        f"sort.{name}={value}: must be at least 2 and at most {most}",
      )
    for name in ("repeat_share", "count_ties"):
      check_probability(f"sort.{name}", getattr(self, name))

  @property
  def figure_input(self) -> str:
    """Returns five numbers spread over the alphabet; those of the paper are
    lost."""
    shares = (0.55, 0.2, 0.85, 0.35, 0.7)
    return " ".join(str(int(self.alphabet * share)) for share in shares)

  def num_random(self, longest: int) -> int:
    return 2 + 2 * longest + self.alphabet

  def draw_items(
    self, numbers: jax.Array, length: int | Array, longest: int
  ) -> jax.Array:
    """Returns `longest` items: uniform, or (repetition data) from k distinct
    values.

    k is uniform in 1...length, or 1...V if that is less; `repeat_share` of the
    examples are of this kind.
    """
    alphabet = self.alphabet
    uniform = below(numbers[2 : 2 + longest], alphabet) + 1
    if not self.repeat_share:
      return uniform
    k = below(numbers[1], jnp.minimum(length, alphabet)) + 1
    picked_rank = below(numbers[2 + longest : 2 + 2 * longest], k)
    rank = ranks(numbers[2 + 2 * longest :])  # of every value
    values = jnp.arange(alphabet) + 1
    repeated = jnp.sum(
      jnp.where(rank == picked_rank[:, None], values, 0), axis=1
    )
    return jnp.where(numbers[0] < self.repeat_share, repeated, uniform)

  def example(self, numbers: jax.Array, size: Size) -> Example:
    items = self.draw_items(numbers, size.lengths[0], size.longest)
    return self.from_items(items, size)

  def from_items(self, items: jax.Array, size: Size) -> Example:
    """Returns the example of items, which are sorted by counting; what follows
    them is junk."""
    place, length = jnp.arange(size.longest), size.lengths[0]
    values = jnp.arange(self.alphabet) + 1
    is_value = (items[:, None] == values) & (place < length)[:, None]
    # How many items are at most each value.
    at_most = jnp.cumsum(is_value.sum(axis=0))
    output = 1 + jnp.sum(at_most <= place[:, None], axis=1)
    return self.told(items, length, output, length)

  def variants(
    self, test_set: str, section, length: int
  ) -> list[tuple[str, tuple]]:
    if test_set.endswith("multiplicity"):
      return [
        (f"{test_set}_x{times}", (times,))
        for times in section.multiplicities
        if times <= length and sets.distinct(length, times) <= self.alphabet
      ]
    if test_set != "repeats":
      return [(test_set, ())]
    # Items repeat as often as the length permits: most often in long prompts.
    items = section.repeated_items
    return [
      (f"repeats_{items}x{times}", (items, times))
      for times in section.repetitions
      if items * times <= length and items <= self.alphabet
    ]
