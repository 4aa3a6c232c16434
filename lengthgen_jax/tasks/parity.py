"""Defines the parity of a bit string as two tasks: a running xor, and one
label."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.tasks.arithmetic import ArithmeticTask
from lengthgen_jax.tasks.task import Example, Size


class Parity(ArithmeticTask):
  """Asks for the running xor from the least significant bit on; its last bit is
  the parity.

  y1 = x1, yi = y(i-1) xor xi (ABS paper, section 3): the scratchpad form. The
  state is the xor so far.

  `$0110` -> `0100&`; `$0001` -> `1111&`.
  """

  name = "parity"
  base = 2
  states = (0, 1)

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    parity = state ^ symbols[0]
    return parity, parity

  def render(self, ids: Sequence[int] | np.ndarray) -> str:
    """Returns the parity bit, which is the last token before `&`."""
    super().render(ids)
    return self.vocabulary.decode(ids).partition("&")[0][-1]


class ParityClassification(Parity):
  """Asks for one label for the whole string, the papers' classification
  baseline.

  `$0110` -> `0&`; `$0111` -> `1&`.
  """

  name = "parity_classification"
  transducer = False

  def from_items(self, items: jax.Array, size: Size) -> Example:
    label = jnp.take(self.answer(items), size.width - 1)
    output = jnp.stack([label, self.end])
    return Example(
      self.prompt(items, size.width),
      self.segment_tokens(output, 2, self.target_segment),
      0,
    )
