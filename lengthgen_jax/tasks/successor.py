"""Defines the task n -> n + 1."""

from collections.abc import Sequence

from lengthgen_jax.coordinates import Array
from lengthgen_jax.tasks.arithmetic import ArithmeticTask


class Successor(ArithmeticTask):
  """Asks for the next integer (ABS paper, section 3); the state is the carry.

  `$0199` -> `0020&`; `$0009` -> `0100&`; `$0123` -> `4210&`.
  """

  name = "successor"
  states = (0, 1)
  initial_state = 1
  figure_input = "03611451449241919819"

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    total = symbols[0] + state
    return total // 10, total % 10
