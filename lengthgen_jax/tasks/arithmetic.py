"""The arithmetic tasks of the ABS/ABC papers, and their base class: format,
segments and sampling."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from lengthgen_jax.coordinates import Array
from lengthgen_jax.sections import INT32, NOT_NEGATIVE
from lengthgen_jax.tasks.arithmetic_test_sets import TEST_SETS
from lengthgen_jax.tasks.numbers import NumberTask
from lengthgen_jax.tasks.task import (
  Draw,
  Example,
  Ids,
  OperandPlace,
  Size,
  Tokens,
  Variants,
  join,
  uniform_int,
)


@dataclasses.dataclass(frozen=True)
class ArithmeticTask(NumberTask):
  """Asks for the digits of an arithmetic expression's value, least significant
  first.

  The prompt is `$` and the expression, operands left-padded with zeros to a
  common width W, but for a short one; the output is W digits and `&`. A segment
  is an operand with the token on its left, so that the row that must say `&`,
  one place beyond the digits, has a key at that place too. The aligned form
  (ABS paper, section 4.1) puts the operator first and interleaves the operands'
  digits.

  A subclass describes a transducer that reads the operands' digits from the
  least significant on (that of a short operand again at every place): `states`,
  `initial_state` and `step`.
  """

  aligned: bool = False  # whether the digits of two operands are interleaved
  # how many zeros `data.width=natural` puts before the longest operand
  slack: Annotated[int, NOT_NEGATIVE] = 2

  section = "arithmetic"
  test_sets = TEST_SETS
  transducer = True

  # Sizes.

  def units(self, length: int) -> int:
    return length if self.base == 10 else math.ceil(length * math.log2(10))

  # Test sets.

  def num_test_samples(self, test_set: str, length: int, samples: int) -> int:
    single = {"zeros", "nines"}
    if self.operands == 1:
      single.add("repeated" if self.base == 2 else "carry")
    if test_set in single:
      return 1
    # 10^L - 10^(L-1) or fewer, the papers' size of a test set.
    return samples if length > 9 else min(9 * 10 ** (length - 1), samples)

  @property
  def stress_sets(self) -> tuple[str, ...]:
    # With a single long operand "unequal" is the same as "equal", and "nines"
    # adds nothing to "carry" and "repeated".
    two_long = len(self.long_operands) == 2
    left_out = {"equal"} if two_long else {"equal", "unequal", "nines"}
    return tuple(name for name in self.test_sets if name not in left_out)

  def variants(self, test_set: str, section: Any, length: int) -> Variants:
    # A carry must be able to cross so many places.
    if test_set != "chain":
      return [(test_set, ())]
    fitting = (n for n in section.chains if n <= self.units(length))
    return [(f"chain_{n}", (n,)) for n in fitting]

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

  def operand_place(self, segment: int, left: int, right: int) -> OperandPlace:
    if self.interleaved:
      return None if left < 2 else (1 - right % 2, right // 2)
    return super().operand_place(segment, left, right)

  # Examples.

  def example(self, draw: Draw, size: Size) -> Example:
    digits = uniform_int(draw(self.operands * size.max_length), self.base)
    inside = jnp.arange(size.max_length) < size.lengths[:, None]
    items = jnp.where(inside, digits.reshape(inside.shape), 0)
    return self.from_items(items, size)

  def from_values(self, values: jax.Array, draw: Draw, size: Size) -> Example:
    """Returns the example of integers [O]; a short operand is drawn instead."""
    powers = [min(self.base**i, INT32) for i in range(size.max_length)]
    items = values[:, None] // jnp.array(powers, jnp.int32) % self.base
    if self.short_operand:
      items = items.at[1, 0].set(uniform_int(draw(1)[0], 10))
    return self.from_items(items, size)

  def from_items(self, items: jax.Array, size: Size) -> Example:
    if self.short_operand:  # is one digit
      items = items.at[1, 1:].set(0)
    items = self.constrain(items)
    place = jnp.arange(size.max_length + 1)
    # The end token stands at place `width`; no digit of an answer does.
    answer = jnp.pad(self.transduce(self.columns(items))[0], (0, 1))
    output = jnp.where(place == size.width, self.end, answer)
    return Example(
      self.prompt(items, size.width),
      self.segment_tokens(output, size.width + 1, self.target_segment),
    )

  def columns(self, items: jax.Array) -> jax.Array:
    """Returns the symbols [O, max_length] that the transducer reads."""
    return items.at[1].set(items[1, 0]) if self.short_operand else items

  def prompt(self, items: jax.Array, width: int | Array) -> Tokens:
    """Returns the tokens of `$` and the expression."""
    if self.interleaved:
      marks = "$" + self.operator
      return self.number_tokens(self.columns(items), width, marks, 0)
    a = self.number_tokens(items[:1], width, "$", 0)
    if self.operands == 1:
      return a
    if self.short_operand:
      items, width = items[:, :1], 1
    b = self.number_tokens(items[1:], width, self.operator, 1)
    return join(a, b)


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


class Addition(ArithmeticTask):
  """Asks for the sum of two numbers (ABS paper, section 3); the state is the
  carry.

  `$0123+0748` -> `1780&`; `$0999+0001` -> `0001&`.
  Aligned: `$+00172438` -> `1780&`.
  """

  name = "addition"
  operator = "+"
  operands = 2
  states = (0, 1)
  figure_input = "078114514+0241919810"

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    total = symbols[0] + symbols[1] + state
    return total // 10, total % 10


class NoCarry(Addition):
  """Asks for the sum of each pair of digits modulo 10, a hint of addition
  ("Extrapolation by Association", arXiv 2506.09251).

  `$0123+0748` -> `1680&`.
  """

  name = "no_carry"

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    return state, (symbols[0] + symbols[1]) % 10


class CarryOnly(Addition):
  """Asks for the carry out of each place of a sum, a hint of addition (arXiv
  2506.09251).

  `$0123+0748` -> `1000&`.
  """

  name = "carry_only"

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    carry, _ = super().step(state, symbols)
    return carry, carry


class Multiply(ArithmeticTask):
  """Asks for a number times one digit d, the papers' N×1 multiplication; the
  state is the carry, which is below d, or 0.

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

  def render(self, ids: Ids) -> str:
    return self.output_digits(ids)[-1]


class ParityClassification(Parity):
  """Asks for one label for the whole string, the papers' classification
  baseline.

  `$0110` -> `0&`; `$0111` -> `1&`.
  """

  name = "parity_classification"
  transducer = False

  def from_items(self, items: jax.Array, size: Size) -> Example:
    prompt, digits, _ = super().from_items(items, size)
    output = digits.ids[size.width - 1 + jnp.arange(2)]  # and the end token
    return Example(prompt, self.segment_tokens(output, 2, self.target_segment))
