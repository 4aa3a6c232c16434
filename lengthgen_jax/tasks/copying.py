"""Defines the tasks of writing the same items again, forwards and backwards."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check
from lengthgen_jax.tasks import sequences as sets
from lengthgen_jax.tasks.sequences import SequenceTask


@dataclasses.dataclass(frozen=True)
class Copy(SequenceTask):
  """Asks for the items as they are, integers 1...V; the transducer has one
  state.

  `5 3 9 3` -> `5 3 9 3`; `2 1` -> `2 1`.

  Attributes:
    alphabet: V, the number of different items.
  """

  alphabet: int = 32

  name: ClassVar[str] = "copy"
  section: ClassVar[str] = "copying"
  test_sets: ClassVar[dict] = {
    "uniform": sets.uniform,
    "all_equal": sets.all_equal,
  }
  states: ClassVar[tuple[int, ...]] = (0,)

  def __post_init__(self):
    check(
      self.alphabet >= 2,
      f"copying.alphabet={self.alphabet}: must be at least 2",
    )
    self.check_tokens("alphabet", self.alphabet)

  @property
  def base(self) -> int:
    return self.alphabet

  @property
  def token_names(self) -> tuple[str, ...]:
    return tuple(str(n + 1) for n in range(self.alphabet))

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    return state, symbols[0]

  @property
  def takes(self) -> str:
    return f"numbers from 1 to {self.alphabet}"

  @property
  def usage(self) -> str:
    return "5 3 9 3" if self.alphabet >= 9 else "2 1 2"


class Reverse(Copy):
  """Asks for the items from the last to the first.

  `5 3 9 3` -> `3 9 3 5`; `2 1` -> `1 2`.
  """

  name = "reverse"
  anchor = "right"

  def parse(self, text: str) -> tuple[np.ndarray, list[int]]:
    items, lengths = super().parse(text)
    return items[:, ::-1], lengths
