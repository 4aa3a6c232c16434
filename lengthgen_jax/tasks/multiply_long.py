"""Defines the task of multiplying two long numbers, whose output is a grid:
the digits of the running sums."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lengthgen_jax.errors import check, check_probability
from lengthgen_jax.tasks import arithmetic_test_sets
from lengthgen_jax.tasks.numbers import NumberTask
from lengthgen_jax.tasks.task import (
  Example,
  Ids,
  Size,
  Tokens,
  expect,
  join,
  uniform_int,
)

MAX_TOKENS = 1 << 25  # of an output; more do not fit in memory

# Test sets: each returns the digits of both operands [2, max_length], least
# significant first.


def equal(
  task: "MultiplyLong", key: jax.Array, size: Size, *arguments: int
) -> jax.Array:
  """Returns two uniform operands of exactly the given lengths.

  The argument of the test set "unequal", the length of the second operand, is
  not used: it is in `size.lengths`.
  """
  return arithmetic_test_sets.equal(task, key, size)


def nines(task: "MultiplyLong", key: jax.Array, size: Size) -> jax.Array:
  """Returns all 9s times all 9s or, with probability 1/2, times a uniform
  number."""
  place = jnp.arange(size.max_length)
  operands = jnp.where(place < size.lengths[:, None], 9, 0)
  return operands.at[1].set(
    jnp.where(jax.random.bernoulli(key), operands[1], equal(task, key, size)[1])
  )


def one(task: "MultiplyLong", key: jax.Array, size: Size) -> jax.Array:
  """Returns operands each of which has a single 1 among zeros."""
  place = jnp.arange(size.max_length)
  hot = jax.random.randint(key, (2, 1), 0, size.lengths[:, None])
  return (place == hot).astype(jnp.int32)


def zeros(task: "MultiplyLong", key: jax.Array, size: Size) -> jax.Array:
  """Returns operands whose digits, but for the first and the last one, are set
  to zero with probability 3/4."""
  operands, last = equal(task, key, size), size.lengths[:, None] - 1
  place = jnp.arange(operands.shape[1])
  is_random = jax.random.bernoulli(key, 0.25, operands.shape)
  return jnp.where(is_random | (place == 0) | (place == last), operands, 0)


@dataclasses.dataclass(frozen=True)
class MultiplyLong(NumberTask):
  """Asks for the running sums of a product a*b, of N and M digits (this task is
  ours).

  Row j of the grid, j = 0...M-1, is s_j = s_(j-1) // 10 + a·b_j, with b_0 the
  least significant digit of b. It has digits k = 0...N, least significant
  first. So the product consists of the first digits of all rows, then the other
  digits of the last row. Digit (j, k) is a function of a_k, b_j, digit k+1 of
  the row before, and a carry; the carry follows from a_(k-1), b_j, digit k of
  the row before and the previous output. Coordinates have the axes j and k;
  a extends along k alone, b along j.

  Operands are not padded: a width is (N, M), or one number for both.

  `$12*34` -> `840040&`; `$99*99` -> `198089&`; `$7*8` -> `65&`.

  Attributes:
    extreme_share: the fraction of the training examples in which each digit is
      0 or 9 with probability 1/2, else uniform. They have the largest and the
      smallest carries, which are rare with uniform digits.
  """

  extreme_share: float = 0.0

  name: ClassVar[str] = "multiply_long"
  section: ClassVar[str] = "multiply_long"
  operator = "*"
  operands = 2
  axes = 2
  segment_axes = (1, 0)
  segments = ("a", "b")
  test_sets = {
    "equal": equal,
    "unequal": equal,
    "nines": nines,
    "one": one,
    "zeros": zeros,
  }
  stress_sets = ("nines", "one", "zeros")

  def __post_init__(self):
    check_probability("multiply_long.extreme_share", self.extreme_share)

  # Sizes.

  def padded_width(self, lengths: Sequence[int]) -> tuple[int, int]:
    """Returns the width (N, M) of operands of these lengths.

    Raises:
      UsageError: the running sums would not fit in memory.
    """
    n, m = lengths
    size = m * (n + 1) + 1
    check(
      size <= MAX_TOKENS,
      f"{n} times {m} digits take {size} tokens of running sums, more than the"
      f" {MAX_TOKENS} that fit; choose shorter numbers",
    )
    return n, m

  def training_widths(
    self, lengths: Sequence[int]
  ) -> tuple[tuple[int, int], ...]:
    """Returns a square (n, n) for each length, and the two rectangles of the
    last two lengths."""
    squares = tuple((length, length) for length in lengths)
    if len(lengths) < 2:
      return squares
    low, high = lengths[-2:]
    return (*squares, (high, low), (low, high))

  def operand_lengths(self, length: int, arguments: tuple) -> tuple[int, ...]:
    return (length, *arguments) if arguments else (length, length)

  def variants(
    self, test_set: str, section: Any, length: int
  ) -> list[tuple[str, tuple]]:
    if test_set != "unequal":
      return [(test_set, ())]
    others = (m for m in section.multipliers if m != length)
    return [(f"unequal_x{m}", (m,)) for m in others]

  # Examples.

  def num_random(self, max_length: int) -> int:
    # One more number decides whether the example is extreme.
    return 2 * max_length + bool(self.extreme_share)

  def example(self, numbers: jax.Array, size: Size) -> Example:
    """Returns an example of uniform digits, of which leading ones may be zeros,
    or an extreme one, with probability `extreme_share` (see there)."""
    if not self.extreme_share:
      return self.from_items(uniform_int(numbers.reshape(2, -1), 10), size)
    is_extreme, numbers = numbers[0] < self.extreme_share, numbers[1:]
    numbers = numbers.reshape(2, -1)
    uniform = uniform_int(numbers, 10)
    # A number below 1/4 gives 0, one below 1/2 gives 9, any other a uniform
    # digit.
    rest = uniform_int(jnp.maximum(2 * numbers - 1, 0), 10)
    extreme = jnp.where(numbers < 0.25, 0, jnp.where(numbers < 0.5, 9, rest))
    return self.from_items(jnp.where(is_extreme, extreme, uniform), size)

  def from_items(self, items: jax.Array, size: Size) -> Example:
    """Returns the example of the operands' digits [2, max_length], of which
    those beyond the width are ignored."""
    bound, width = size.bound, jnp.broadcast_to(jnp.asarray(size.width), 2)
    max_n, max_m = bound if isinstance(bound, tuple) else (bound, bound)
    inside = jnp.arange(items.shape[1]) < width[:, None]
    items, (n, m) = self.constrain(jnp.where(inside, items, 0)), width
    a, b = items[:1, :max_n], items[1:, :max_m]
    prompt = join(
      self.number_tokens(a, n, "$", 0, self.segment_axes[0]),
      self.number_tokens(b, m, "*", 1, self.segment_axes[1]),
    )
    place = jnp.arange(max_m * (max_n + 1) + 1)
    j, k = place // (n + 1), place % (n + 1)
    sums = self.sums(a[0], b[0])[jnp.minimum(j, max_m - 1), k]
    last = m * (n + 1)
    output = Tokens(
      ids=jnp.where(place == last, self.end, sums),
      length=jnp.asarray(last + 1, jnp.int32),
      segment=jnp.full(place.shape, self.target_segment, jnp.int32),
      left=jnp.stack([j, k], axis=1).astype(jnp.int32),
      right=jnp.stack([m - j, n - k], axis=1).astype(jnp.int32),
      # Only marks at the beginning of a segment are no digits here.
      digit=jnp.full(place.shape, True),
    )
    return Example(prompt, output, prefix_length=0)

  def sums(self, a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns the digits [M, N + 1] of the running sums of a [N] times each
    digit of b [M]."""
    a = jnp.pad(a, (0, 1)).astype(jnp.int32)

    def add_row(previous_row, digit):
      def add_digit(carry, addend):
        total = addend + carry
        return total // 10, total % 10

      shifted = jnp.append(previous_row[1:], 0)
      _, row = jax.lax.scan(add_digit, jnp.int32(0), shifted + a * digit)
      return row, row

    return jax.lax.scan(add_row, jnp.zeros_like(a), b.astype(jnp.int32))[1]

  # Text.

  def render(self, ids: Ids) -> str:
    """Returns the product that the tokens of an output spell, if N = M."""
    count = max(len(ids) - 1, 0)
    n = int((count + 0.25) ** 0.5)
    return self.render_with_lengths(ids, (n, count // (n + 1)))

  def render_with_lengths(
    self,
    ids: Ids,
    lengths: Sequence[int],
    scratchpad: bool = False,
  ) -> str:
    """Returns the product that the tokens of an output spell.

    It is read off the running sums and not computed, so it is wrong where they
    are.

    Args:
      ids: the tokens of an output.
      lengths: the lengths (N, M) of the two operands.
      scratchpad: whether the running sums precede the product, as in
        `738 688 560 -> 56088`.

    Raises:
      ValueError: there are more or fewer tokens than the running sums of
        operands of these lengths have.
    """
    n, m = lengths
    digits = self.output_digits(ids)
    count = m * (n + 1)
    expect(
      len(digits) == count,
      f"the model wrote {len(digits)} digits of running sums, not {count}",
    )
    # All numbers are least significant digit first. A row is a running sum.
    sums = [digits[i : i + n + 1] for i in range(0, len(digits), n + 1)]
    product = "".join(number[0] for number in sums) + sums[-1][1:]
    texts = [number[::-1].lstrip("0") or "0" for number in (*sums, product)]
    return " ".join([*texts[:-1], "->", texts[-1]]) if scratchpad else texts[-1]
