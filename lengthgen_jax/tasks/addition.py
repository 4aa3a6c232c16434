"""a+b."""

from lengthgen_jax.tasks import digits
from lengthgen_jax.tasks.arithmetic import ArithmeticTask


class Addition(ArithmeticTask):
  """The sum of two numbers (ABS paper, section 3).

  `$0123+0748` -> `1780&`; `$0999+0001` -> `0001&`.
  Aligned: `$+00172438` -> `1780&`.
  """

  name = "addition"
  operator = "+"
  operands = 2

  def answer(self, operands):
    return digits.carry(operands[0] + operands[1], self.base)
