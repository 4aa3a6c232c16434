"""Defines the task of running sums modulo p."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check
from lengthgen_jax.tasks import sequences as sets
from lengthgen_jax.tasks.states import StateTask


@dataclasses.dataclass(frozen=True)
class Modular(StateTask):
  """Asks for the sum of the items so far modulo p; items are 0...p - 1.

  With p=2 it is the running parity of bits.

  `3 5 6` -> `3 1 0`; `6 6 6 6` -> `6 5 4 3`.

  Attributes:
    p: the modulus.
  """

  p: int = 7

  name: ClassVar[str] = "modular"
  section: ClassVar[str] = "modular"
  test_sets: ClassVar[dict] = {
    "uniform": sets.uniform,
    "all_equal": sets.all_equal,
    "lone": sets.lone,
  }

  def __post_init__(self):
    super().__post_init__()
    check(self.p >= 2, f"modular.p={self.p}: a modulus must be at least 2")
    self.check_tokens("p", self.p)

  @property
  def base(self) -> int:
    return self.p

  @property
  def states(self) -> tuple[int, ...]:
    return tuple(range(self.p))

  @property
  def token_names(self) -> tuple[str, ...]:
    return tuple(map(str, range(self.p)))

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    total = (state + symbols[0]) % self.p
    return total, total

  @property
  def takes(self) -> str:
    return f"numbers from 0 to {self.p - 1}"

  @property
  def usage(self) -> str:
    return " ".join(str(n % self.p) for n in (1, 3, 2, 5))
