"""What the arithmetic tasks share: formats, segments, sampling, parsing."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.errors import check, shown
from lengthgen_jax.tasks import digits
from lengthgen_jax.tasks.task import Example, Size, Task, below, join
from lengthgen_jax.tasks.vocabulary import ARITHMETIC


@dataclasses.dataclass(frozen=True)
class ArithmeticTask(Task):
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
  unit: ClassVar[str] = "digits"
  test_sets: ClassVar[dict] = {
    "equal": digits.equal,
    "unequal": digits.unequal,
    "carry": digits.carry_chain,
  }
  ragged: ClassVar[bool] = False
  of_digits: ClassVar[bool] = True
  transducer: ClassVar[bool] = True
  operator: ClassVar[str] = ""
  base: ClassVar[int] = 10
  short_operand: ClassVar[bool] = False  # the second operand is one digit
  end: ClassVar[int] = ARITHMETIC.id("&")

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

  def last_zero(self, width, fixed_width):
    """First place of a number that is always padding."""
    return width - 1 if fixed_width else width - self.slack

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

  def is_digit(self, operand: int) -> bool:
    """Whether this operand is the single digit of N×1."""
    return operand == 1 and self.short_operand

  def prompt_size(self, longest):
    if self.interleaved:
      return 2 * longest + 2
    widths = [1 if self.is_digit(i) else longest for i in range(self.operands)]
    return sum(widths) + self.operands

  def output_size(self, longest):
    return longest + 1

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
    place = jnp.arange(size.longest)
    drawn = []
    for i, own in enumerate(numbers.reshape(self.operands, -1)):
      length = 1 if self.is_digit(i) else size.lengths[i]
      base = 10 if self.is_digit(i) else self.base
      drawn.append(jnp.where(place < length, below(own, base), 0))
    return self.answered(jnp.stack(drawn), size)

  def from_values(self, values, numbers, size: Size) -> Example:
    """The example of integers [O] below 2^20; N×1's digit from `numbers`."""
    drawn = [
      digits.from_value(value, size.longest, self.base) for value in values
    ]
    if self.short_operand:
      digit = below(numbers[0], 10)
      drawn[1] = jnp.where(jnp.arange(size.longest) == 0, digit, 0)
    return self.answered(jnp.stack(drawn), size)

  def answered(self, items, size):
    """Of operands' digits [O, longest], least significant first."""
    answer = self.answer(items, size.width)
    place = jnp.arange(size.longest + 1)
    padded = jnp.pad(answer, (0, 1))
    output = jnp.where(place == size.width, self.end, padded)
    return Example(
      self.prompt(items, size.width),
      self.run(output, size.width + 1, self.target),
      0,
    )

  def answer(self, items, width):
    """Digits [longest] of the result."""
    del width
    symbols = jnp.stack(
      [
        jnp.full_like(own, own[0]) if self.is_digit(i) else own
        for i, own in enumerate(items)
      ],
      axis=1,
    )
    begin = jnp.int32(self.begin)
    return jax.lax.scan(self.step, begin, symbols)[1].astype(jnp.int32)

  def prompt(self, items, width):
    """Tokens of `$` and the expression."""
    start = self.vocabulary.id(self.vocabulary.start)
    if self.operands == 1:
      return self.number(items[0], width, start, 0)
    operator = self.vocabulary.id(self.operator)
    if self.interleaved:
      return self.pairs(items, width, start, operator)
    b_width = 1 if self.short_operand else width
    longest = items.shape[1]
    a = self.number(items[0], width, start, 0)
    b = self.number(items[1], b_width, operator, 1)
    return join([a, b], self.prompt_size(longest))

  def number(self, own, width, mark: int, segment: int):
    """A mark, then the digits, most significant first."""
    place = jnp.arange(own.shape[0] + 1)
    digit = own[jnp.clip(width - place, 0, own.shape[0] - 1)]
    ids = jnp.where(place == 0, mark, digit)
    return self.run(ids, width + 1, segment, marks=1)

  def pairs(self, items, width, start: int, operator: int):
    """`$`, the operator and both operands' digits in turn."""
    a, b = items
    longest = items.shape[1]
    b = jnp.full_like(b, b[0]) if self.short_operand else b
    place = jnp.arange(2 * longest + 2)
    digit = jnp.clip(width - place // 2, 0, longest - 1)
    ids = jnp.where(place % 2 == 0, a[digit], b[digit])
    ids = jnp.where(place == 0, start, jnp.where(place == 1, operator, ids))
    return self.run(ids, 2 * width + 2, 0, marks=2)

  vocabulary = ARITHMETIC
  vocab_size = 15  # the papers'; `=` is a decoder-only model's alone
  pad = ARITHMETIC.id("@")
  start = ARITHMETIC.id("$")
  delimiter = ARITHMETIC.id("=")

  @property
  def usage(self):
    if self.operands == 1:
      return "99999" if self.base == 10 else "0110"
    return f"123{self.operator}{4 if self.short_operand else 456}"

  def parse(self, text):
    """Digits [O, longest] of a typed expression, and its operands' lengths.

    Spaces are ignored.
    """
    kept = "".join(text.split())
    parts = kept.split(self.operator) if self.operator else [kept]
    allowed = "0123456789"[: self.base]
    what = "bits" if self.base == 2 else "digits"
    wanted = f"{self.name} takes {what} like {self.usage}"
    bad = next((c for c in kept if c not in allowed + self.operator), None)
    quoted = shown(text)
    if not kept:
      raise ValueError(f"empty line; {wanted}")
    if bad is not None:
      raise ValueError(f"{quoted} has the character {bad!r}; {wanted}")
    if len(parts) != self.operands:
      found = len(parts) - 1
      raise ValueError(
        f"{quoted} has {found} operators {self.operator!r}; {wanted}"
      )
    if not all(parts):
      raise ValueError(f"{quoted} lacks an operand; {wanted}")
    if self.short_operand and len(parts[1]) != 1:
      raise ValueError(
        f"{quoted} has a multiplier of {len(parts[1])} digits; {wanted}"
      )
    longest = max(map(len, parts))
    items = np.zeros((self.operands, longest), np.int32)
    for i, part in enumerate(parts):
      items[i, : len(part)] = [int(c) for c in reversed(part)]
    return items, [len(part) for part in parts]

  def typed(self, items, length: int) -> str:
    """What a person types for digits [O, L] of so many places."""
    numbers = [
      own[: 1 if self.is_digit(i) else length][::-1]
      for i, own in enumerate(items)
    ]
    return self.operator.join("".join(map(str, own)) for own in numbers)

  def symbols(self, ids):
    return list(self.vocabulary.decode(ids))

  def render(self, ids):
    """The answer in ordinary order without leading zeros."""
    tokens = self.vocabulary.decode(ids)
    body, end, _ = tokens.partition(self.vocabulary.end)
    if not end:
      raise ValueError(
        f"no end token {self.vocabulary.end!r} after {shown(body)}"
      )
    if not body or not set(body) <= set("0123456789"[: self.base]):
      raise ValueError(f"the model wrote {shown(body)}, which is no number")
    return body[::-1].lstrip("0") or "0"
