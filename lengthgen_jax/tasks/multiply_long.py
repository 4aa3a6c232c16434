"""a*b of two long numbers, by running sums: a grid of digits."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.errors import check, shown
from lengthgen_jax.tasks.digits import exact
from lengthgen_jax.tasks.numbers import NumberTask
from lengthgen_jax.tasks.task import Example, Tokens, below, expect, join

MOST = 1 << 25  # tokens of an output, beyond which memory ends

# Test sets: digits of both operands [2, longest].


def equal(task, key, size, *other):
  """Both operands have exactly their lengths."""
  keys, room = jax.random.split(key), max(task.room(size.longest))
  own = zip(keys, size.lengths, strict=True)
  return jnp.stack([exact(k, n, room, task.base) for k, n in own])


def nines(task, key, size):
  """All 9s times all 9s, or (every other time) any number."""
  place = jnp.arange(max(task.room(size.longest)))
  full = jnp.where(place < size.lengths[:, None], 9, 0)
  return full.at[1].set(
    jnp.where(jax.random.bernoulli(key), full[1], equal(task, key, size)[1])
  )


def one(task, key, size):
  """A single 1 among zeros in either."""
  place = jnp.arange(max(task.room(size.longest)))
  hot = jax.random.randint(key, (2, 1), 0, size.lengths[:, None])
  return (place == hot).astype(jnp.int32)


def zeros(task, key, size):
  """Three of four digits are zeros, but the first and the last ones."""
  drawn, last = equal(task, key, size), size.lengths[:, None] - 1
  place = jnp.arange(drawn.shape[1])
  keep = jax.random.bernoulli(key, 0.25, drawn.shape)
  return jnp.where(keep | (place == 0) | (place == last), drawn, 0)


class MultiplyLong(NumberTask):
  """The running sums of a product, N digits times M (ours).

  Row j of the grid, j = 0...M-1, is s_j = s_(j-1) // 10 + a·b_j with its digits
  k = 0...N, least significant first. So the product is the first digits of all
  rows, then the rest of the last one; and digit (j, k) hangs on a_k, b_j, digit
  k+1 of the row before and a carry, which a_(k-1), b_j, digit k of the row
  before and the previous output tell. Coordinates have the axes j and k; digits
  of a stand on k alone, those of b on j.

  Operands are not padded: a width is (N, M), or one number for both.

  `$12*34` -> `840040&`; `$99*99` -> `198089&`; `$7*8` -> `65&`.
  """

  name = "multiply_long"
  section = "multiply_long"
  operator = "*"
  operands = 2
  axes = 2
  along = (1, 0)
  segments = ("a", "b")
  test_sets: ClassVar[dict] = {
    "equal": equal,
    "unequal": equal,
    "nines": nines,
    "one": one,
    "zeros": zeros,
  }
  stress = ("nines", "one", "zeros")

  # Sizes.

  def room(self, longest) -> tuple[int, int]:
    """Static bounds of N and M."""
    return longest if isinstance(longest, tuple) else (longest, longest)

  def padded(self, lengths):
    n, m = lengths
    size = m * (n + 1) + 1
    check(
      size <= MOST,
      f"{n} times {m} digits take {size} tokens of running sums, more than the"
      f" {MOST} that fit; choose shorter numbers",
    )
    return n, m

  def sizes(self, widths):
    """Squares, and the rectangles between the last two."""
    squares = tuple((width, width) for width in widths)
    if len(widths) < 2:
      return squares
    low, high = widths[-2:]
    return (*squares, (high, low), (low, high))

  def operand_lengths(self, length, how):
    return (length, *how) if how else (length, length)

  def variants(self, test_set, section, length):
    if test_set != "unequal":
      return [(test_set, ())]
    others = (m for m in section.multipliers if m != length)
    return [(f"unequal_x{m}", (m,)) for m in others]

  def holds(self, segment: int, left: int, right: int):
    """(operand, place) of a prompt's token; None if it is a mark."""
    return (segment, right) if left else None

  # Examples.

  def draws(self, longest):
    return 2 * max(self.room(longest))

  def example(self, numbers, size):
    """Uniform digits, leading zeros among them."""
    return self.answered(below(numbers.reshape(2, -1), 10), size)

  def answered(self, items, size) -> Example:
    """Of operands' digits [2, longest], least significant first; those beyond
    the width are left out."""
    room, width = self.room(size.longest), jnp.broadcast_to(size.width, 2)
    inside = jnp.arange(items.shape[1]) < width[:, None]
    items, (n, m) = jnp.where(inside, items, 0), width
    a, b = items[:1, : room[0]], items[1:, : room[1]]
    prompt = join(
      self.number(a, n, "$", 0, self.along[0]),
      self.number(b, m, "*", 1, self.along[1]),
    )
    place = jnp.arange(room[1] * (room[0] + 1) + 1)
    j, k = place // (n + 1), place % (n + 1)
    sums = self.sums(a[0], b[0])[jnp.minimum(j, room[1] - 1), k]
    last = m * (n + 1)
    output = Tokens(
      ids=jnp.where(place == last, self.end, sums),
      length=jnp.asarray(last + 1, jnp.int32),
      segment=jnp.full(place.shape, self.target, jnp.int32),
      left=jnp.stack([j, k], axis=1).astype(jnp.int32),
      right=jnp.stack([m - j, n - k], axis=1).astype(jnp.int32),
      digit=jnp.full(place.shape, True),
    )
    return Example(prompt, output, 0)

  def sums(self, a, b):
    """Digits [M, N + 1] of the running sums of a [N] times each digit of b."""
    a = jnp.pad(a, (0, 1)).astype(jnp.int32)

    def one_row(before, digit):
      def one_digit(carry, at):
        total = at + carry
        return total // 10, total % 10

      shifted = jnp.append(before[1:], 0)
      _, row = jax.lax.scan(one_digit, jnp.int32(0), shifted + a * digit)
      return row, row

    return jax.lax.scan(one_row, jnp.zeros_like(a), b.astype(jnp.int32))[1]

  # Text.

  def render(self, ids):
    """The product, of numbers that are equally long."""
    size = max(len(ids) - 1, 0)
    n = int((size + 0.25) ** 0.5)
    return self.spoken(ids, (n, size // (n + 1)))

  def spoken(self, ids, lengths, work=False):
    """The product; with the way there, `738 688 560 -> 56088`."""
    n, m = lengths
    tokens = self.vocabulary.decode(ids)
    body, end, _ = tokens.partition("&")
    expect(end, f"no end token '&' after {shown(body)}")
    expect(
      body and set(body) <= set("0123456789"),
      f"the model wrote {shown(body)}, which is no number",
    )
    expect(
      len(body) == m * (n + 1),
      f"the model wrote {len(body)} digits of running sums, not {m * (n + 1)}",
    )
    sums = [body[i : i + n + 1] for i in range(0, len(body), n + 1)]
    product = "".join(own[0] for own in sums) + sums[-1][1:]
    said = [own[::-1].lstrip("0") or "0" for own in (*sums, product)]
    return " ".join([*said[:-1], "->", said[-1]]) if work else said[-1]


class RunningSum:
  """A row of the grid as a transducer: s // 10 + a·b of a digit b.

  At place p it reads digit p - 1 of a and digit p of the row before, s, and
  says digit p - 1 of the row; at place 0 it reads s alone. A sum before is
  below 10·a, or 0; and every such sum is one, if b is long enough.

  A state is BEFORE, or the carry and how s compares with 10·a so far: LESS,
  NOTHING (both are 0), or neither.

  Attributes:
    first: whether there is no row before.
  """

  operands, base, shared = 3, 10, (1,)
  neither, less, nothing = range(3)
  begin = 30
  states = range(31)

  def __init__(self, first: bool, end: int):
    self.first, self.end = first, end

  def step(self, state, symbols):
    """(next state, digit), of arrays alike."""
    a, b, s = symbols
    carry, order = np.divmod(state, 3)
    told = (a != s) | (order == self.nothing) & (a > 0)
    order = np.where(told, np.where(s < a, self.less, self.neither), order)
    total = s + a * b + carry
    first, empty = state == self.begin, np.where(s > 0, 0, 2)
    after = np.where(first, empty, 3 * (total // 10) + order)
    return after, np.where(first, 0, total % 10)

  def possible(self, state, digits) -> bool:
    a, s = digits
    return not (a and state == self.begin or s and self.first)

  def ends(self, state, digits) -> bool:
    """Whether zeros can follow for ever."""
    return not any(digits) and state % 3 != self.neither
