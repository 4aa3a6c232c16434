"""Defines the base class of the arithmetic tasks: format, transducer, segments
and sampling."""

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check
from lengthgen_jax.tasks import digits, stress
from lengthgen_jax.tasks.numbers import NumberTask
from lengthgen_jax.tasks.task import Example, Size, Tokens, below, join


@dataclasses.dataclass(frozen=True)
class ArithmeticTask(NumberTask):
  """Asks for the digits of an arithmetic expression's value, least significant
  first.

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

  # The task as a transducer.

  states: ClassVar[tuple[int, ...]]
  initial_state: ClassVar[int] = 0

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    """Returns (next state, output digit) from the state and a digit of each
    operand (the single digit of N×1 is read again at every place)."""

  def operand_place(
    self, segment: int, left: int, right: int
  ) -> tuple[int, int] | None:
    """Returns (operand, place) of a prompt's token; None if it is a mark."""
    if self.interleaved:
      return None if left < 2 else (1 - right % 2, right // 2)
    return (segment, right) if left else None

  # Sizes.

  def units(self, length: int) -> int:
    return length if self.base == 10 else math.ceil(length * math.log2(10))

  def bits(self, length: int) -> int | None:
    return self.units(length) if self.base == 2 else None

  def natural_width(self, length: int) -> int:
    return length + self.slack

  def num_test_samples(self, length: int, samples: int) -> int:
    """Returns min(10^L - 10^(L-1), samples), the papers' size of a test set."""
    return samples if length > 9 else min(9 * 10 ** (length - 1), samples)

  # Test sets.

  @property
  def stress_sets(self) -> tuple[str, ...]:
    return stress.names(self)

  @property
  def single_input_sets(self) -> tuple[str, ...]:
    return stress.alone(self)

  def variants(
    self, test_set: str, section, length: int
  ) -> list[tuple[str, tuple]]:
    return stress.variants(test_set, section, self.units(length))

  # Segments.

  @property
  def interleaved(self) -> bool:
    """Returns whether the digits of both operands alternate in one segment."""
    return self.aligned and self.operands == 2

  @property
  def segments(self) -> tuple[str, ...]:
    return ("pairs",) if self.interleaved else ("a", "b")[: self.operands]

  @property
  def strides(self) -> tuple[int, ...]:
    if self.interleaved:
      return (2,)
    return (1, 0 if self.short_operand else 1)[: self.operands]

  # Examples.

  def num_random(self, longest: int) -> int:
    return self.operands * longest

  def example(self, numbers: jax.Array, size: Size) -> Example:
    is_short = self.short_operand
    lengths = size.lengths.at[1].set(1) if is_short else size.lengths
    inside = jnp.arange(size.longest) < lengths[:, None]
    drawn = below(numbers.reshape(self.operands, -1), self.base)
    return self.from_items(jnp.where(inside, drawn, 0), size)

  def from_values(
    self, values: jax.Array, numbers: jax.Array, size: Size
  ) -> Example:
    """Returns the example of integers [O] below 2^20; the digit of N×1 is made
    of `numbers`."""
    items = digits.from_values(values, size.longest, self.base)
    if self.short_operand:
      items = items.at[1].set(0).at[1, 0].set(below(numbers[0], 10))
    return self.from_items(items, size)

  def from_items(self, items: jax.Array, size: Size) -> Example:
    """Returns the example of operands' digits [O, longest], least significant
    first."""
    place = jnp.arange(size.longest + 1)
    answer = jnp.pad(self.answer(items), (0, 1))
    output = jnp.where(place == size.width, self.end, answer)
    return Example(
      self.prompt(items, size.width),
      self.segment_tokens(output, size.width + 1, self.target_segment),
      0,
    )

  def answer(self, items: jax.Array) -> jax.Array:
    """Returns the digits [longest] of the result."""
    begin, columns = jnp.int32(self.initial_state), self.columns(items).T
    return jax.lax.scan(self.step, begin, columns)[1].astype(jnp.int32)

  def columns(self, items: jax.Array) -> jax.Array:
    """Returns the digits [O, longest] that are read together at each place; the
    digit of N×1 is at every place."""
    return items.at[1].set(items[1, 0]) if self.short_operand else items

  def prompt(self, items: jax.Array, width: int | Array) -> Tokens:
    """Returns the tokens of `$` and the expression."""
    if self.interleaved:
      return self.number(self.columns(items), width, "$" + self.operator, 0)
    a = self.number(items[:1], width, "$", 0)
    if self.operands == 1:
      return a
    is_short = self.short_operand
    second_width, spare = (1, items.shape[1] - 1) if is_short else (width, 0)
    return join(
      a, self.number(items[1:], second_width, self.operator, 1), spare=spare
    )
