"""a*d with one digit d: the papers' N×1 multiplication."""

from lengthgen_jax.tasks import digits
from lengthgen_jax.tasks.arithmetic import ArithmeticTask


class Multiply(ArithmeticTask):
  """A number times one digit; the carry can be any digit up to 8.

  `$0123*4` -> `2940&`; `$0999*9` -> `1998&`.
  Aligned, the digit beside every digit: `$*04142434` -> `2940&`.
  """

  name = "multiply"
  operator = "*"
  operands = 2
  short_operand = True

  def answer(self, operands):
    return digits.carry(operands[0] * operands[1], self.base)
