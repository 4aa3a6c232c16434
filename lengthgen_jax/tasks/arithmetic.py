"""What the arithmetic tasks share: formats, segments, sampling."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from lengthgen_jax.errors import check
from lengthgen_jax.tasks import digits, stress
from lengthgen_jax.tasks.numbers import NumberTask
from lengthgen_jax.tasks.task import Example, Size, below, join


@dataclasses.dataclass(frozen=True)
class ArithmeticTask(NumberTask):
  """Digits in, digits of the answer out, least significant first.

  The prompt is `$` and the expression, operands left-padded with zeros to a
  common width W; the output is W reversed digits and `&`. A segment is an
  operand with the token on its left, so that the row which must say `&` has a
  key that marks the end of the number. The aligned form (ABS paper, section
  4.1) puts the operator first and interleaves the operands' digits.

  A task states itself as a transducer that reads the operands' digits from the
  least significant on: `states`, `begin` and `step`.

  Attributes:
    aligned: whether a binary task interleaves its operands.
    slack: zero digits that `width=natural` puts before the longest operand.
  """

  aligned: bool = False
  slack: int = 2

  section: ClassVar[str] = "arithmetic"
  test_sets: ClassVar[dict] = {
    "equal": digits.equal,
    "unequal": digits.unequal,
    "carry": digits.carry_chain,
    **stress.SETS,
  }
  transducer: ClassVar[bool] = True

  def __post_init__(self):
    check(
      self.slack >= 0, f"arithmetic.slack={self.slack}: must not be negative"
    )

  # The transducer that a task is.

  states: ClassVar[tuple[int, ...]]
  begin: ClassVar[int] = 0

  def step(self, state, symbols):
    """(next state, output digit) from the state and a digit of each operand
    (the single digit of N×1 is read again and again)."""

  def holds(self, segment: int, left: int, right: int):
    """(operand, place) of a prompt's token; None if it is a mark."""
    if self.interleaved:
      return None if left < 2 else (1 - right % 2, right // 2)
    return (segment, right) if left else None

  # Sizes.

  def units(self, length):
    return length if self.base == 10 else math.ceil(length * math.log2(10))

  def bits(self, length):
    return self.units(length) if self.base == 2 else None

  def natural_width(self, length):
    return length + self.slack

  def test_size(self, length, samples):
    """min(10^L - 10^(L-1), samples), the papers' size of a test set."""
    return samples if length > 9 else min(9 * 10 ** (length - 1), samples)

  # Test sets.

  @property
  def stress(self):
    return stress.names(self)

  @property
  def alone(self):
    return stress.alone(self)

  def variants(self, test_set, section, length):
    return stress.variants(test_set, section, self.units(length))

  # Segments.

  @property
  def interleaved(self) -> bool:
    return self.aligned and self.operands == 2

  @property
  def segments(self):
    return ("pairs",) if self.interleaved else ("a", "b")[: self.operands]

  @property
  def strides(self):
    if self.interleaved:
      return (2,)
    return (1, 0 if self.short_operand else 1)[: self.operands]

  # Examples.

  def draws(self, longest):
    return self.operands * longest

  def example(self, numbers, size):
    short = self.short_operand
    lengths = size.lengths.at[1].set(1) if short else size.lengths
    inside = jnp.arange(size.longest) < lengths[:, None]
    drawn = below(numbers.reshape(self.operands, -1), self.base)
    return self.answered(jnp.where(inside, drawn, 0), size)

  def from_values(self, values, numbers, size: Size) -> Example:
    """The example of integers [O] below 2^20; N×1's digit from `numbers`."""
    items = digits.from_values(values, size.longest, self.base)
    if self.short_operand:
      items = items.at[1].set(0).at[1, 0].set(below(numbers[0], 10))
    return self.answered(items, size)

  def answered(self, items, size):
    """Of operands' digits [O, longest], least significant first."""
    place = jnp.arange(size.longest + 1)
    answer = jnp.pad(self.answer(items), (0, 1))
    output = jnp.where(place == size.width, self.end, answer)
    return Example(
      self.prompt(items, size.width),
      self.run(output, size.width + 1, self.target),
      0,
    )

  def answer(self, items):
    """Digits [longest] of the result."""
    begin, columns = jnp.int32(self.begin), self.columns(items).T
    return jax.lax.scan(self.step, begin, columns)[1].astype(jnp.int32)

  def columns(self, items):
    """Digits [O, longest] that are read together: N×1's one is in each."""
    return items.at[1].set(items[1, 0]) if self.short_operand else items

  def prompt(self, items, width):
    """Tokens of `$` and the expression."""
    if self.interleaved:
      return self.number(self.columns(items), width, "$" + self.operator, 0)
    a = self.number(items[:1], width, "$", 0)
    if self.operands == 1:
      return a
    short = self.short_operand
    own, spare = (1, items.shape[1] - 1) if short else (width, 0)
    return join(a, self.number(items[1:], own, self.operator, 1), spare=spare)
