"""Defines the word problem of a symmetric group: running products of
permutations."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check_choice, quoted
from lengthgen_jax.tasks import sequences as sets
from lengthgen_jax.tasks.states import StateTask
from lengthgen_jax.tasks.task import expect

GROUPS = {"S3": 3, "S5": 5}  # the group's name, and how many things it permutes


@functools.cache
def elements(size: int) -> tuple[tuple[int, ...], ...]:
  """Returns all permutations of 0...size - 1, the identity first."""
  return tuple(itertools.permutations(range(size)))


@functools.cache
def products(size: int) -> np.ndarray:
  """Returns the multiplication table [n, n]: the number of s∘x, by the numbers
  of s and x."""
  permutations = np.array(elements(size))
  number = {element: i for i, element in enumerate(elements(size))}
  return np.array(
    [[number[tuple(s[x])] for x in permutations] for s in permutations]
  )


@dataclasses.dataclass(frozen=True)
class Permutations(StateTask):
  """Asks for the product of the items so far, y_i = y_(i-1) ∘ x_i.

  What stood at place x_i(k) comes to place k. Items are all elements of the
  group (120 in S5), not only generators: the word problem as Liu et al. (2023,
  arXiv 2210.10749) and Merrill et al. (2024, 2404.08819) pose it. The word
  problem of S5 is complete for NC1; S3 is solvable.

  `21345 13245` -> `21345 23145`; `23451 23451` -> `23451 34512`.

  Attributes:
    group: "S3" or "S5".
  """

  group: str = "S5"

  name: ClassVar[str] = "permutations"
  section: ClassVar[str] = "permutations"
  test_sets: ClassVar[dict] = {
    "uniform": sets.uniform,
    "all_equal": sets.all_equal,
    "lone": sets.lone,
  }

  def __post_init__(self):
    super().__post_init__()
    check_choice("permutations.group", self.group, GROUPS)

  @property
  def size(self) -> int:
    """Returns how many things the group permutes."""
    return GROUPS[self.group]

  @property
  def base(self) -> int:
    return len(elements(self.size))

  @property
  def states(self) -> tuple[int, ...]:
    return tuple(range(self.base))

  @property
  def token_names(self) -> tuple[str, ...]:
    return tuple(
      "".join(str(k + 1) for k in element) for element in elements(self.size)
    )

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    product = jnp.asarray(products(self.size))[state, symbols[0]]
    return product, product

  @property
  def takes(self) -> str:
    return f"permutations of {self.token_names[0]}"

  @property
  def usage(self) -> str:
    return " ".join((self.token_names[1], self.token_names[-1]))

  def parse(self, text: str) -> tuple[np.ndarray, list[int]]:
    for word in text.split():
      expect(
        not word.isdigit() or sorted(word) == sorted(self.token_names[0]),
        f"{quoted(text)} has {quoted(word)}, which is no permutation of"
        f" {self.token_names[0]}; {self.name} takes {self.takes} like"
        f" {self.usage}",
      )
    return super().parse(text)
