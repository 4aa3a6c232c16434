"""Running products in a symmetric group: the word problem."""

import dataclasses
import functools
import itertools
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from lengthgen_jax.errors import check_choice, shown
from lengthgen_jax.tasks import sequences as sets
from lengthgen_jax.tasks.states import StateTask
from lengthgen_jax.tasks.task import expect

GROUPS = {"S3": 3, "S5": 5}  # and how many things are permuted


@functools.cache
def elements(size: int) -> tuple[tuple[int, ...], ...]:
  """All permutations of 0...size - 1, the identity first."""
  return tuple(itertools.permutations(range(size)))


@functools.cache
def products(size: int) -> np.ndarray:
  """[n, n] the number of s∘x, by the numbers of s and x."""
  every = np.array(elements(size))
  number = {own: i for i, own in enumerate(elements(size))}
  return np.array([[number[tuple(s[x])] for x in every] for s in every])


@dataclasses.dataclass(frozen=True)
class Permutations(StateTask):
  """The items' product so far, y_i = y_(i-1) ∘ x_i: what stood at place x_i(k)
  comes to place k.

  Items are all elements of the group (120 in S5), not only generators: the word
  problem as Liu et al. (2023, arXiv 2210.10749) and Merrill et al. (2024,
  2404.08819) pose it. S5's is complete for NC1, S3's is solvable.

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
    return GROUPS[self.group]

  @property
  def base(self):
    return len(elements(self.size))

  @property
  def states(self):
    return tuple(range(self.base))

  @property
  def names(self):
    return tuple(
      "".join(str(k + 1) for k in own) for own in elements(self.size)
    )

  def step(self, state, symbols):
    now = jnp.asarray(products(self.size))[state, symbols[0]]
    return now, now

  @property
  def takes(self):
    return f"permutations of {self.names[0]}"

  @property
  def usage(self):
    return " ".join((self.names[1], self.names[-1]))

  def parse(self, text):
    for word in text.split():
      expect(
        not word.isdigit() or sorted(word) == sorted(self.names[0]),
        f"{shown(text)} has {shown(word)}, which is no permutation of"
        f" {self.names[0]}; {self.name} takes {self.takes} like {self.usage}",
      )
    return super().parse(text)
