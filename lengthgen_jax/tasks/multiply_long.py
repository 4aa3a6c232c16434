"""The task of multiplying two long numbers, whose output is a grid: the digits
of the running sums."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.errors import check
from lengthgen_jax.sections import Fraction
from lengthgen_jax.tasks.arithmetic_test_sets import equal
from lengthgen_jax.tasks.grid import GridTask
from lengthgen_jax.tasks.numbers import NumberTask, number_text
from lengthgen_jax.tasks.task import (
  Draw,
  Example,
  Ids,
  Size,
  Variants,
  join,
  uniform_int,
)

# How a row above compares with 10·a, by the digits that were read.
NOT_LESS, LESS, BOTH_ZERO = "not less", "less", "both zero"

# Test sets.


def nines(task: "MultiplyLong", key: jax.Array, size: Size) -> jax.Array:
  """Returns all 9s times all 9s or, with probability 1/2, times a uniform
  number."""
  key, coin = jax.random.split(key)
  place = jnp.arange(size.max_length)
  operands = jnp.where(place < size.lengths[:, None], 9, 0)
  factor = equal(task, key, size)[1]
  return operands.at[1].set(
    jnp.where(jax.random.bernoulli(coin), operands[1], factor)
  )


def one(task: "MultiplyLong", key: jax.Array, size: Size) -> jax.Array:
  """Returns operands each of which has a single 1 among zeros."""
  place = jnp.arange(size.max_length)
  hot = jax.random.randint(key, (2, 1), 0, size.lengths[:, None])
  return (place == hot).astype(jnp.int32)


def zeros(task: "MultiplyLong", key: jax.Array, size: Size) -> jax.Array:
  """Returns operands whose digits, but for the first and the last one, are set
  to zero with probability 3/4."""
  key, coins = jax.random.split(key)
  operands, last = equal(task, key, size), size.lengths[:, None] - 1
  place = jnp.arange(operands.shape[1])
  is_random = jax.random.bernoulli(coins, 0.25, operands.shape)
  return jnp.where(is_random | (place == 0) | (place == last), operands, 0)


@dataclasses.dataclass(frozen=True)
class MultiplyLong(GridTask, NumberTask):
  """Asks for the running sums of a product a*b, of N and M digits (this task is
  ours).

  Row j of the grid, j = 0...M-1, is s_j = s_(j-1) // 10 + a·b_j, with b_0 the
  least significant digit of b. It has digits k = 0...N, least significant
  first. So the product consists of the first digits of all rows, then the other
  digits of the last row. Digit (j, k) is a function of a_k, b_j, digit k+1 of
  the row before, and a carry; the carry follows from a_(k-1), b_j, digit k of
  the row before and the previous output. Operands are not padded; a extends
  along k alone, b along j.

  `$12*34` -> `840040&`; `$99*99` -> `198089&`; `$7*8` -> `65&`.
  """

  # the fraction of the training examples in which each digit is 0 or 9 with
  # probability 1/2, else uniform; they have the largest and the smallest
  # carries, which are rare with uniform digits
  extreme_share: Fraction = 0.0

  name = "multiply_long"
  operator = "*"
  segments = ("a", "b")
  cells = "0123456789"
  operand_in = "every"
  ahead, behind = 1, 0
  test_sets = {
    "equal": equal,
    # The argument, the second length, is in `size.lengths` already.
    "unequal": lambda task, key, size, length: equal(task, key, size),
    "nines": nines,
    "one": one,
    "zeros": zeros,
  }
  stress_sets = ("nines", "one", "zeros")

  # Sizes.

  def variants(self, test_set: str, section: Any, length: int) -> Variants:
    if test_set != "unequal":
      return [(test_set, ())]
    others = (m for m in section.multipliers if m != length)
    return [(f"unequal_x{m}", (m,)) for m in others]

  # Examples.

  def draw_items(self, draw: Draw, size: Size) -> jax.Array:
    # One more number decides whether the example is extreme.
    has_extremes = bool(self.extreme_share)
    numbers = draw(2 * size.max_length + has_extremes)
    uniforms = numbers[has_extremes:].reshape(2, -1)
    items = uniform_int(uniforms, 10)
    if has_extremes:
      # A number below 1/4 gives 0, one below 1/2 gives 9, any other a uniform
      # digit.
      rest = uniform_int(jnp.maximum(2 * uniforms - 1, 0), 10)
      extreme = jnp.where(
        uniforms < 0.25, 0, jnp.where(uniforms < 0.5, 9, rest)
      )
      items = jnp.where(numbers[0] < self.extreme_share, extreme, items)
    return items

  def from_items(self, items: jax.Array, size: Size) -> Example:
    width = jnp.broadcast_to(jnp.asarray(size.width), 2)
    max_n, max_m = np.broadcast_to(size.bound, 2)
    # Digits beyond the width are ignored.
    inside = jnp.arange(items.shape[1]) < width[:, None]
    items, (n, m) = self.constrain(jnp.where(inside, items, 0)), width
    a, b = items[:1, :max_n], items[1:, :max_m]
    prompt = join(
      self.number_tokens(a, n, "$", 0, axis=1),
      self.number_tokens(b, m, "*", 1, axis=0),
    )
    a = jnp.pad(a[0], (0, 1))
    sums = self.write_rows(jnp.zeros_like(a), b[0], n + 1, operand=a)
    output = self.grid_tokens(sums, m, n + 1, self.target_segment)
    return Example(prompt, output)

  # A running sum is below 10·a, or 0: no other row above occurs.

  def first_state(self, driver: int) -> tuple[int, str]:
    return 0, BOTH_ZERO

  def write(self, state: Any, driver: int, a: int, above: int) -> tuple:
    carry, order = state
    carry, digit = divmod(above + a * driver + carry, 10)
    # The most significant digits that differ decide, and `a` is read one cell
    # late; equal nonzero numbers are not less.
    if a != above or order == BOTH_ZERO and a:
      order = LESS if above < a else NOT_LESS
    return (carry, order), digit

  def accepts(self, state: Any) -> bool:
    return state[1] != NOT_LESS

  def items_with_row(self, above, operand, driver):
    a, b = operand[:-1], []
    if above:
      # n + 2 digits of b can make any sum.
      number = lambda digits: int("".join(map(str, digits[::-1])))
      size, factor = len(a) + 2, number(a)
      lower = -(-number(above) * 10 ** (size - 1) // factor) if factor else 0
      b = [*map(int, str(lower).zfill(size)[::-1])]
    return [a, b + [driver] * (driver is not None)]

  # Text.

  def render(self, ids: Ids) -> str:
    """Returns the product that the tokens of an output spell, if N = M."""
    count = max(len(ids) - 1, 0)
    n = int((count + 0.25) ** 0.5)
    return self.render_with_lengths(ids, (n, count // (n + 1)))

  def render_with_lengths(self, ids, lengths, scratchpad=False):
    """Returns the product that the tokens of an output spell; with
    `scratchpad`, the running sums precede it, as in `738 688 560 -> 56088`.

    It is read off the running sums and not computed, so it is wrong where they
    are.
    """
    n, m = lengths
    digits = self.output_digits(ids)
    count = m * (n + 1)
    check(
      len(digits) == count,
      f"the model wrote {len(digits)} digits of running sums, not {count}",
    )
    # All numbers are least significant digit first. A row is a running sum.
    sums = [digits[i : i + n + 1] for i in range(0, len(digits), n + 1)]
    product = "".join(number[0] for number in sums) + sums[-1][1:]
    above = [*map(number_text, sums), "->"] * scratchpad
    return " ".join([*above, number_text(product)])
