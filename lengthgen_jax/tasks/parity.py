"""Parity of a bit string: as a running xor, and as one label."""

import jax.numpy as jnp

from lengthgen_jax.tasks.arithmetic import ArithmeticTask


class Parity(ArithmeticTask):
  """Running xor from the least significant bit; its last bit is the parity.

  y1 = x1, yi = y(i-1) xor xi (ABS paper, section 3): the scratchpad form.

  `$0110` -> `0100&`; `$0001` -> `1111&`.
  """

  name = "parity"
  base = 2

  def answer(self, operands):
    running = jnp.cumsum(operands[0][:, ::-1], axis=1) % 2
    return running[:, ::-1]

  def render(self, tokens: str) -> str:
    """The parity bit: the last token before `&`."""
    super().render(tokens)
    return tokens.partition(self.vocabulary.end)[0][-1]


class ParityClassification(Parity):
  """One label for the whole string, the papers' classification baseline.

  `$0110` -> `0&`; `$0111` -> `1&`.
  """

  name = "parity_classification"

  def answer(self, operands):
    return super().answer(operands)[:, :1]

  def target_length(self, width: int) -> int:
    return 2
