"""Tasks whose output is a grid of cells, each of which follows from the row
above by a local rule: cellular automata, Turing machines, insertion sort,
changes of base, division, sums of many numbers, and binary products."""

import abc
import dataclasses
import functools
import itertools
import re
from collections.abc import Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.errors import check, quoted
from lengthgen_jax.sections import Range
from lengthgen_jax.tasks.grid import GridTask, row_machine
from lengthgen_jax.tasks.numbers import number_text
from lengthgen_jax.tasks.task import (
  Draw,
  Example,
  Ids,
  Size,
  drawing,
  join,
  uniform_int,
)

TICK = "."  # drives the rows that nothing else drives
INFINITE = 1 << 30  # what the empty cell of a sorted list counts as


def uniform(task: "LocalRule", key: jax.Array, size: Size) -> jax.Array:
  """Returns items like those of training."""
  return task.draw_items(drawing(key), size)


class LocalRule(GridTask):
  """The base class of grids that a local rule writes, from items alone.

  The prompt has one item for each row or, if there is an operand, this and a
  tick for each row. If `operand_in` is "first", the operand is the first row,
  and every further one follows from the one above. If it is "own", the operand
  has a row for each row. The output is all rows, whose number the prompt says.
  People type the first row, `*` and how many steps follow; or items, or rows
  with `row_separator` between them, and perhaps `*` and how many cells a row
  has. They read the last row.

  A subclass has `cells` and `write`, and what else differs of `GridTask`; and
  `separator`, which stands between cells as people write them.
  """

  test_sets = {"uniform": uniform}
  unit = "cells"
  anchor = "left"
  separator = ""
  row_separator = "/"  # between rows as people write them
  # Whether rows are numbers, which people write most significant digit first.
  is_number = False

  # Tokens.

  @property
  def has_first_row(self) -> bool:
    return self.operand_in == "first"

  @property
  def segments(self) -> tuple[str, ...]:
    if not self.operand_in:
      return ("items",)
    return "row" if self.has_first_row else "rows", "steps"

  @functools.cached_property
  def token_names(self) -> tuple[str, ...]:
    ticks = (TICK,) if self.operand_in else ()
    return *self.cells, *ticks, "⊥", "@"

  @property
  def drivers(self) -> Sequence[int]:
    return (self.base,) if self.operand_in else range(self.base)

  @property
  def base(self) -> int:
    return len(self.cells)

  # Examples.

  def draw_items(self, draw: Draw, size: Size) -> jax.Array:
    numbers = draw(self.num_items(size.bound))
    if self.operand_in:
      row = uniform_int(numbers, len(self.cells))
      return jnp.stack([row, jnp.full_like(row, self.drivers[0])])
    drivers = jnp.asarray(self.drivers)
    items = drivers[uniform_int(numbers, len(drivers))]
    return jnp.stack([jnp.zeros_like(items), items])

  def from_items(self, items: jax.Array, size: Size) -> Example:
    n, m = jnp.broadcast_to(jnp.asarray(size.width), 2)
    max_n, max_m = np.broadcast_to(size.bound, 2)
    # Items that are missing, like those beyond the length, are the least ones.
    drivers = jnp.maximum(items[1, :max_m], min(self.drivers))
    prompt = self.segment_tokens(drivers, m, len(self.segments) - 1)
    above, operand = jnp.zeros(max_n, jnp.int32), 0
    if self.operand_in == "own":
      place = jnp.arange(max_m)[:, None] * n + jnp.arange(max_n)
      operand = jnp.take(items[0], place, mode="clip")
      prompt = join(self.grid_tokens(operand, m, n, 0), prompt)
    if self.has_first_row:
      above = jnp.where(jnp.arange(max_n) < n, items[0, :max_n], 0)
      prompt = join(self.segment_tokens(above, n, 0, axis=1), prompt)
      rows = self.write_rows(above, drivers[1:], n)
      rows = jnp.concatenate([above[None], rows])
    else:
      rows = self.write_rows(above, drivers, n, operand)
    output = self.grid_tokens(rows, m, n, self.target_segment)
    return Example(prompt, output)

  def training_widths(self, lengths):
    """Returns as many cells as rows for each length and, so that rows end
    anywhere, half and a quarter as many cells."""
    shares = itertools.product((1, 2, 4), lengths)
    widths = [(max(m // share, 1), m) for share, m in shares]
    return tuple(dict.fromkeys(widths))

  def items_with_row(self, above, operand, driver):
    if not self.has_first_row:
      return None
    ticks = [*self.drivers] * (1 if above is None else 2)
    return [operand if above is None else above, ticks]

  # Text.

  @property
  def usage(self) -> str:
    if self.has_first_row:
      return self.separator.join([self.cells[0], self.cells[-1]]) + "*3"
    if self.operand_in:  # two rows of two cells
      row = self.render([1, len(self.cells) - 1])
      return row + self.row_separator + row
    ids = [self.drivers[i % len(self.drivers)] for i in (4, 2, 8, 2)]
    return self.render(ids)

  def default_number(self, longest: int, rows: int) -> int:
    """Returns the number behind `*` if people leave it out, by the longest row
    that they type, and how many rows there are; -1 if they must not."""
    return -1 if self.has_first_row else longest

  def parse(self, text: str) -> tuple[np.ndarray, list[int]]:
    expected = f"{self.name} takes a line like {self.usage}"
    has_rows = self.operand_in == "own"
    typed, star, number = text.partition("*")
    check(typed.strip(), f"empty line; {expected}")
    known = range(self.base) if self.operand_in else self.drivers
    ids, rows = {self.cells[id]: id for id in known}, []
    for part in typed.split(self.row_separator) if has_rows else [typed]:
      names = part.split() if self.separator else list("".join(part.split()))
      for name in names:
        check(name in ids, f"{quoted(text)} has {quoted(name)}; {expected}")
      check(names, f"{quoted(text)} lacks a row; {expected}")
      rows.append([ids[name] for name in names])
    row, longest = rows[0], max(map(len, rows))
    count = len(rows) if has_rows else longest
    more, least = self.default_number(longest, count), 1 - self.has_first_row
    if star:
      is_count = re.fullmatch(r"\s*[0-9]+\s*", number) and len(number) < 10
      more = int(number) if is_count else -1
    check(
      more >= least,
      f"{quoted(text)} has no number behind * of at least {least} and at most 9"
      f" digits; {expected}",
    )
    lengths = [more, count]
    if self.has_first_row:
      machine = row_machine(self)
      state = machine.start[0]
      for cell in (*row, *[0] * self.ahead):
        state = machine.next_states[0, state, cell]
      is_row = machine.accepting[state]
      check(is_row, f"{quoted(text)}: {self.refused}; {expected}")
      lengths = [longest, more + 1]
    self.padded_width(lengths)
    items = np.zeros((2, self.num_items(tuple(lengths))), np.int32)
    items[1, : lengths[1]] = self.drivers[0] if self.operand_in else row
    if self.has_first_row:
      items[0, :longest] = row
    elif has_rows:
      grid = items[0].reshape(lengths[::-1])
      for cells, given in zip(grid, rows, strict=True):
        given = given[::-1] if self.is_number else given
        cells[: len(given)] = given[: len(cells)]
    return items, lengths

  refused = "no such row occurs"

  def input_text(self, items: np.ndarray, lengths: Sequence[int]) -> str:
    n, m = lengths
    if self.has_first_row:
      return f"{self.render(items[0][:n])}*{m - 1}"
    if self.operand_in:
      rows = items[0][: n * m].reshape(m, n)
      rows = rows[:, ::-1] if self.is_number else rows
      return self.row_separator.join(map(self.render, rows)) + f"*{n}"
    return self.render(items[1][:m]) + f"*{n}" * (n != m)

  def render(self, ids: Ids) -> str:
    for token in ids:
      check(
        token < len(self.cells),
        f"the model wrote token {token}, which is no cell",
      )
    return self.separator.join(self.symbols(ids))

  def render_with_lengths(self, ids, lengths, scratchpad=False):
    """Returns the answer; with `scratchpad` all rows but the last before it."""
    n, m = lengths
    check(len(ids) == n * m, f"the model wrote {len(ids)} cells, not {n * m}")
    rows = [ids[i : i + n] for i in range(0, n * m, n)]
    above = [*map(self.read, rows[:-1])] * scratchpad
    return " / ".join([*above, self.answer(rows)])

  def answer(self, rows: Sequence[Ids]) -> str:
    """Returns what people read, by default the last row."""
    return self.read(rows[-1])

  def read(self, row: Ids) -> str:
    """Returns a row as people read it."""
    text = self.render(row)
    return number_text(text) if self.is_number else text


class CellularAutomaton(LocalRule):
  """The base class of rules by which a cell follows from the one above it and
  the two beside that one; a subclass has `cells` and `next_cell`."""

  operand_in = "first"
  ahead = 1

  @abc.abstractmethod
  def next_cell(self, left: int, middle: int, right: int) -> int:
    """Returns the cell below three cells; outside of the grid they are 0."""

  def first_state(self, driver) -> Any:
    return 0, 0  # the cells at the left of the one that is read

  def write(self, state, driver, right) -> Any:
    left, middle = state
    return (middle, right), self.next_cell(left, middle, right)


@dataclasses.dataclass(frozen=True)
class Automaton(CellularAutomaton):
  """Asks for the rows of an elementary cellular automaton, whose rules have
  Wolfram's numbers.

  `00010*2` -> `01110` (rule 110).
  """

  rule: Annotated[int, Range("must be from 0 to 255", 0, 255)] = 110

  name = "automaton"
  cells = "01"

  def next_cell(self, left, middle, right):
    return self.rule >> (4 * left + 2 * middle + right) & 1


@dataclasses.dataclass(frozen=True)
class Turing(CellularAutomaton):
  """Asks for the tape of a Turing machine after every step.

  A cell is a symbol or, where the head is, the state and the symbol, like `A0`.
  The machine is written as for busy beavers: for each state from A on, what it
  does on each symbol, like `1RB` (write 1, go right, go on as B); states are
  joined by `_`, and any other letter, like `Z`, halts. The symbol 0 is the
  blank. The tape has as many cells as are typed; a head that leaves it is gone.

  `0 A0 0*1` -> `0 1 B0 (not halted)`.
  """

  machine: str = "1RB1LB_1LA0LC_1RZ1LD_1RD0RA"  # the busy beaver of 4 states

  name = "turing"
  separator = " "
  refused = "a tape has one head at most"

  def __post_init__(self):
    super().__post_init__()
    rows = self.machine.split("_")
    size = len(rows[0]) // 3
    actions = f"([0-{max(size - 1, 0)}][LR][A-Z]){{{size}}}"
    check(
      0 < size <= 10 and all(re.fullmatch(actions, row) for row in rows),
      f"turing.machine={self.machine!r}: wanted the same number of actions like"
      " 1RB of each state, joined by _, that write symbols below that number",
    )

  @functools.cached_property
  def actions(self) -> dict[str, str]:
    """Returns {cell with a head: action}, like {"A0": "1RB"}; a state that
    halts has none."""
    rows = enumerate(self.machine.split("_"))
    return {
      f"{chr(65 + i)}{k // 3}": row[k : k + 3]
      for i, row in rows
      for k in range(0, len(row), 3)
    }

  @functools.cached_property
  def cells(self) -> tuple[str, ...]:
    symbols = sorted({cell[1] for cell in self.actions})
    halting = {x[2] for x in self.actions.values()} - {
      x[0] for x in self.actions
    }
    heads = [x + y for x in sorted(halting) for y in symbols]
    return *symbols, *self.actions, *heads

  # A row above has one head at most.

  def first_state(self, driver):
    return (0, 0), False

  def write(self, state, driver, right):
    cells, has_head = state
    is_head = len(self.cells[right]) > 1
    if is_head and has_head:
      return None
    cells, after = super().write(cells, driver, right)
    return (cells, has_head or is_head), after

  def next_cell(self, left, middle, right):
    texts = [self.cells[x] for x in (left, middle, right)]
    before, after, behind = (self.actions.get(text, "") for text in texts)
    symbol = after[0] if after else texts[1]
    for action, direction in ((before, "R"), (behind, "L")):
      if action[1:2] == direction:
        symbol = action[2] + symbol
    return self.cells.index(symbol)

  def draw_items(self, draw, size):
    # A head in any state, at any place.
    numbers = draw(self.num_items(size.bound) + 2)
    n = jnp.broadcast_to(jnp.asarray(size.width), 2)[0]
    symbols = len({cell[1] for cell in self.actions})
    states = (len(self.cells) - symbols) // symbols
    row = uniform_int(numbers[:-2], symbols)
    head = symbols * (1 + uniform_int(numbers[-1], states)) + row
    has_head = jnp.arange(len(row)) == uniform_int(numbers[-2], n)
    row = jnp.where(has_head, head, row)
    return jnp.stack([row, jnp.full_like(row, self.drivers[0])])

  def answer(self, rows):
    text = self.render(rows[-1])
    heads = [x for x in text.split() if len(x) > 1]
    if not heads:
      return f"{text} (the head has left the tape)"
    return f"{text} ({'not ' * (heads[0] in self.actions)}halted)"


@dataclasses.dataclass(frozen=True)
class InsertionSort(LocalRule):
  """Asks for the lists of insertion sort: row j has the first j + 1 items in
  order, and behind them empty cells.

  With fewer cells than items the largest items are dropped. In every second
  example items repeat: they are drawn from k random items, k from 1 to the most
  that there are.

  `5 3 9 3` -> `3 3 5 9`; `5 3 9 3*2` -> `3 3`.
  """

  alphabet: Annotated[int, Range("must be from 2 to 250", 2, 250)] = 32

  name = "insertion_sort"
  separator = " "

  @functools.cached_property
  def cells(self) -> tuple[str, ...]:
    return "_", *(str(n + 1) for n in range(self.alphabet))

  @property
  def drivers(self):
    return range(1, self.alphabet + 1)

  def draw_items(self, draw, size):
    longest = self.num_items(size.bound)
    numbers = draw(2 * longest + 2)
    items = 1 + uniform_int(numbers[:longest], self.alphabet)
    k = 1 + uniform_int(numbers[-1], longest)
    repeated = items[uniform_int(numbers[longest:-2], k)]
    items = jnp.where(numbers[-2] < 0.5, repeated, items)
    return jnp.stack([jnp.zeros_like(items), items])

  def first_state(self, driver):
    return -1  # the cell above on the left

  def write(self, state, driver, above):
    left, right = (x or INFINITE for x in (state, above))
    if right < left:
      return None
    if right <= driver:
      return above, above
    return above, driver if left <= driver else state

  def items_with_row(self, above, operand, driver):
    items = [x for x in above or () if x]
    return [[0] * len(operand), [*items, driver]]


@dataclasses.dataclass(frozen=True)
class Base(LocalRule):
  """Asks for a number in another base, which is typed most significant digit
  first: row j is the value of its first j + 1 digits, r_j = source·r_(j-1) +
  digit, written least significant digit first, modulo what its cells can hold.

  `1011` -> `11`; `1011*1` -> `1`.
  """

  source: Annotated[int, Range("must be from 2 to 10", 2, 10)] = 2
  target: Annotated[int, Range("must be from 2 to 10", 2, 10)] = 10

  name = "base"
  is_number = True

  def __post_init__(self):
    super().__post_init__()
    # A larger carry than the target's digits would not show in the output.
    check(
      self.source <= self.target,
      f"base.source={self.source}: must not exceed base.target={self.target}"
      " (task='halving' gives the binary digits of a decimal number)",
    )

  @property
  def cells(self):
    return "0123456789"[: self.target]

  @property
  def drivers(self):
    return range(self.source)

  def first_state(self, driver):
    return driver  # the carry

  def write(self, state, driver, above):
    return divmod(self.source * above + state, self.target)

  def items_with_row(self, above, operand, driver):
    value = sum(x * self.target**k for k, x in enumerate(above or ()))
    digits = [] if above is None else [0]
    while value:
      value, digit = divmod(value, self.source)
      digits.insert(1, digit)
    return [[0] * len(operand), [*digits, driver]]


class ManyAddends(LocalRule):
  """Asks for the running sums of numbers: row j is the sum of the first j + 1,
  least significant digit first, modulo what its cells can hold.

  `17+5+98` -> `120`; `17+5+98*2` -> `20`.
  """

  name = "many_addends"
  cells = "0123456789"
  operand_in = "own"
  row_separator = "+"
  is_number = True

  def write(self, state, driver, digit, above):
    # The state is the carry.
    return divmod(digit + above + state, len(self.cells))

  def items_with_row(self, above, operand, driver):
    rows = [operand] if above is None else [above, operand]
    return [sum(rows, []), [driver] * len(rows)]

  def default_number(self, longest, rows):
    return longest + len(str(rows - 1))  # for the carries


class OuterProduct(ManyAddends):
  """Asks for a product of binary numbers, given their outer product as a grid
  (arXiv 2603.29069): row j of the prompt is a·b_j, and row j of the output r_j
  = r_(j-1) // 2 + a·b_j, least significant digit first, modulo what its cells
  can hold. The product is the first digits of all rows, then the other digits
  of the last row. In every second example the most significant digit of a is 0,
  so that the product fits.

  `11x101` -> `1111`; `11/00/11` -> `1111`.
  """

  name = "outer_product"
  section = "outer_product"
  cells = "01"
  row_separator = "/"
  usage = "11x101"
  ahead = 1

  def draw_items(self, draw, size):
    max_n, max_m = np.broadcast_to(size.bound, 2)
    n = jnp.broadcast_to(jnp.asarray(size.width), 2)[0]
    numbers = draw(int(max_n + max_m + 1))
    a, b = jnp.split(uniform_int(numbers[:-1], 2), [max_n])
    is_last = jnp.arange(max_n) == n - 1
    a = jnp.where(is_last & (numbers[-1] < 0.5), 0, a)
    place = jnp.arange(self.num_items(size.bound))
    items = a[place % n] * jnp.take(b, place // n, mode="clip")
    return jnp.stack([items, jnp.full_like(items, self.drivers[0])])

  def default_number(self, longest, rows):
    return longest + 1

  def parse(self, text):
    factors = re.fullmatch(r"\s*([01]+)\s*x\s*([01]+)\s*(\*.*)?", text)
    if factors:
      a, b, cells = factors.groups("")
      rows = [a if bit == "1" else "0" * len(a) for bit in reversed(b)]
      text = "/".join(rows) + cells
    return super().parse(text)

  def answer(self, rows):
    return super().answer([[*[row[0] for row in rows[:-1]], *rows[-1]]])


@dataclasses.dataclass(frozen=True)
class Divide(LocalRule):
  """Asks for a decimal number divided by one digit, as often as typed.

  `1234*1` -> `176`; `1234*2` -> `25` (by 7).
  """

  divisor: Annotated[int, Range("must be from 1 to 9", 1, 9)] = 7

  name = "divide"
  cells = "0123456789"
  operand_in = "first"

  def write(self, state, driver, above):
    # The state is the remainder.
    return divmod(10 * state + above, self.divisor)[::-1]

  def read(self, row):
    return self.render(row).lstrip("0") or "0"


class Halving(LocalRule):
  """Asks for the binary digits of a decimal number: whether it, halved again
  and again, is even or odd.

  `13` -> `1101`.
  """

  name = "halving"
  cells = "0123456789"
  operand_in = "first"

  def write(self, state, driver, above):
    return divmod(10 * state + above, 2)[::-1]

  def default_number(self, longest, rows):
    return 4 * longest - 1

  read = Divide.read

  def answer(self, rows):
    parities = (int(self.render(row)[-1]) % 2 for row in rows)
    return number_text("".join(map(str, parities)))
