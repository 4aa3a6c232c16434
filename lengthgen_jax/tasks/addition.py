"""Defines the task a+b."""

from collections.abc import Sequence

from lengthgen_jax.coordinates import Array
from lengthgen_jax.tasks.arithmetic import ArithmeticTask


class Addition(ArithmeticTask):
  """Asks for the sum of two numbers (ABS paper, section 3); the state is the
  carry.

  `$0123+0748` -> `1780&`; `$0999+0001` -> `0001&`.
  Aligned: `$+00172438` -> `1780&`.
  """

  name = "addition"
  operator = "+"
  operands = 2
  states = (0, 1)
  figure_input = "078114514+0241919810"

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    total = symbols[0] + symbols[1] + state
    return total // 10, total % 10
