"""n -> n + 1."""

from lengthgen_jax.tasks.arithmetic import ArithmeticTask


class Successor(ArithmeticTask):
  """The next integer (ABS paper, section 3); the state is the carry.

  `$0199` -> `0020&`; `$0009` -> `0100&`; `$0123` -> `4210&`.
  """

  name = "successor"
  states = (0, 1)
  begin = 1
  pictured = "03611451449241919819"

  def step(self, state, symbols):
    total = symbols[0] + state
    return total // 10, total % 10
