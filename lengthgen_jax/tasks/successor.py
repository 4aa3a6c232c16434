"""n -> n + 1."""

from lengthgen_jax.tasks import digits
from lengthgen_jax.tasks.arithmetic import ArithmeticTask


class Successor(ArithmeticTask):
  """The next integer (ABS paper, section 3).

  `$0199` -> `0020&`; `$0009` -> `0100&`; `$0123` -> `4210&`.
  """

  name = "successor"

  def answer(self, operands):
    return digits.carry(operands[0].at[:, -1].add(1), self.base)
