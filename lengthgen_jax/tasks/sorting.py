"""Sorting (task hinting paper, sections 3 and 4)."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from lengthgen_jax.errors import check, check_share
from lengthgen_jax.tasks import items as sets
from lengthgen_jax.tasks.items import ItemTask
from lengthgen_jax.tasks.task import below


def ranks(number):
  """The place of each number in ascending order (a random permutation); by
  comparison, because XLA compiles a sort for seconds."""
  i = jnp.arange(number.shape[0])
  first = (number < number[:, None]) | (
    (number == number[:, None]) & (i < i[:, None])
  )
  return jnp.sum(first, axis=1)


@dataclasses.dataclass(frozen=True)
class Sort(ItemTask):
  """The items in ascending order.

  `5 3 9 3` -> `3 3 5 9`; `2 1` -> `1 2`.

  Attributes:
    alphabet: V.
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
  stress = ("all_equal", "two_values", "near_ties", "sorted", "reversed")

  def __post_init__(self):
    for name, most in (("alphabet", 1 << 16), ("count_gap", 1 << 31)):
      value = getattr(self, name)
      check(
        2 <= value <= most,
        f"sort.{name}={value}: must be at least 2 and at most {most}",
      )
    for name in ("repeat_share", "count_ties"):
      check_share(f"sort.{name}", getattr(self, name))

  @property
  def pictured(self):
    """Five numbers, spread over the alphabet; the paper's are lost."""
    parts = (0.55, 0.2, 0.85, 0.35, 0.7)
    return " ".join(str(int(self.alphabet * part)) for part in parts)

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

  def example(self, numbers, size):
    items = self.draw_items(numbers, size.lengths[0], size.longest)
    return self.answered(items, size)

  def answered(self, items, size):
    """Sorted by counting, with junk behind the items."""
    place, length = jnp.arange(size.longest), size.lengths[0]
    values = jnp.arange(self.alphabet) + 1
    same = (items[:, None] == values) & (place < length)[:, None]
    upto = jnp.cumsum(same.sum(axis=0))  # items that are at most each value
    output = 1 + jnp.sum(upto <= place[:, None], axis=1)
    return self.told(items, length, output, length)

  def variants(self, test_set, section, length):
    if test_set.endswith("multiplicity"):
      return [
        (f"{test_set}_x{times}", (times,))
        for times in section.multiplicities
        if times <= length and sets.distinct(length, times) <= self.alphabet
      ]
    if test_set != "repeats":
      return [(test_set, ())]
    # As many as there is room for: the longest prompts repeat the most.
    items = section.repeated_items
    return [
      (f"repeats_{items}x{times}", (items, times))
      for times in section.repetitions
      if items * times <= length and items <= self.alphabet
    ]
