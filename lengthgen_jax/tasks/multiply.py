"""Defines the task a*d with one digit d: the papers' N×1 multiplication."""

from collections.abc import Sequence

from lengthgen_jax.coordinates import Array
from lengthgen_jax.tasks.arithmetic import ArithmeticTask


class Multiply(ArithmeticTask):
  """Asks for a number times one digit d; the state is the carry, which is below
  d.

  `$0123*4` -> `2940&`; `$0999*9` -> `1998&`.
  Aligned, the one digit stands beside every digit: `$*04142434` -> `2940&`.
  """

  name = "multiply"
  operator = "*"
  operands = 2
  short_operand = True
  states = tuple(range(9))

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    total = symbols[0] * symbols[1] + state
    return total // 10, total % 10
