"""The base class of tasks whose output is a grid, row by row, and the machine
that writes a row."""

import abc
import functools
import itertools
import math
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import UsageError, check, check_choice, user_errors
from lengthgen_jax.tasks.task import Draw, Example, Size, Task, Tokens, Width

MAX_TOKENS = 1 << 25  # of an output; more do not fit in memory
MAX_STATES = 1 << 12  # of a machine


class Machine(NamedTuple):
  """The machine of a grid's rows, for D drivers, Q states and S symbols. The
  last state is that of a row that cannot occur."""

  symbols: np.ndarray  # [S, 1 or 2], cells: of the operand, if any, and above
  start: np.ndarray  # [D], the first state
  next_states: np.ndarray  # [D, Q, S]
  cells: np.ndarray  # [D, Q, S], what is written
  accepting: np.ndarray  # [Q] bool, whether a row above may end there


class GridTask(Task):
  """The base class of tasks whose output is a grid, row by row.

  A finite machine writes a row. It reads the row above cell by cell, from the
  left (in numbers the least significant digit), and behind its end `ahead`
  cells 0; it writes a cell for each that it reads, but for the first `ahead`.
  Each row is driven by an item of the prompt's last segment, on which the
  machine depends. Above the first row there are cells 0.

  A cell is its token id. A subclass has `cells`, `first_state` and `write`, all
  plain Python, which are tried for all states and symbols and become tables.

  Coordinates have the axes j (rows) and k (cells). There are always two
  operands. The second, along j, has an item for each row. The first, along k,
  has an item for each cell of a row; if `operand_in` is "", it is not in the
  prompt, and its length alone is used; if that is "own", it has as many rows as
  the grid, one after another. A width is (cells of a row, rows).
  """

  ragged = False
  has_scratchpad = True
  operands = 2
  axes = 2
  # How many cells to the right of a cell, and to its left, the row above has a
  # say in it. (What is further to the left the machine remembers; the window
  # does not show it.)
  ahead: ClassVar[int] = 0
  behind: ClassVar[int] = 1

  @property
  def segment_axes(self) -> tuple[tuple[int, ...], ...]:
    along_cells = (0, 1) if self.operand_in == "own" else (1,)
    return (along_cells, (0,)) if self.operand_in else ((0,),)

  @property
  @abc.abstractmethod
  def cells(self) -> Sequence[str]:
    """Returns the cells as people write them, by token id; the first is what
    stands outside of the grid."""

  @property
  def drivers(self) -> Sequence[int]:
    """Returns the token ids of what rows are driven by."""
    return range(len(self.cells))

  def first_state(self, driver: int) -> Hashable:
    """Returns the state in which the machine begins a row."""
    return 0

  # With any signature, so that a subclass may name the arguments.
  @abc.abstractmethod
  def write(self, *arguments: Any, **keywords: Any) -> Any:
    """Returns (next state, cell that is written) for (state, driver, cell above
    that is read), before which there is the operand's cell if it is read; or
    None if no row above can go on like that."""

  def accepts(self, state: Any) -> bool:
    """Returns whether a row above may end in a state."""
    return True

  @abc.abstractmethod
  def draw_items(self, draw: Draw, size: Size) -> jax.Array:
    """Returns the items of a training example; `draw` is as in `example`."""

  def example(self, draw: Draw, size: Size) -> Example:
    return self.from_items(self.draw_items(draw, size), size)

  def training_widths(self, lengths):
    """Returns the square of each length, and the rectangles of the last two."""
    squares = tuple((length, length) for length in lengths)
    if len(lengths) < 2:
      return squares
    low, high = lengths[-2:]
    return (*squares, (high, low), (low, high))

  def num_items(self, bound: Width) -> int:
    if self.operand_in == "own":
      return math.prod(np.broadcast_to(bound, 2).tolist())
    return super().num_items(bound)

  def padded_width(self, lengths: Sequence[int]) -> tuple[int, int]:
    n, rows = lengths
    cells = n + (self.operand_in == "every")
    check(
      cells * rows < MAX_TOKENS,
      f"{rows} rows of {cells} cells are more than the {MAX_TOKENS} tokens that"
      " fit; choose fewer",
    )
    return n, rows

  def operand_lengths(self, length: int, arguments: tuple) -> tuple[int, ...]:
    return (length, *arguments, length)[:2]

  def write_rows(
    self,
    above: Array,
    drivers: Array,
    num_cells: Array,
    operand: Array | int = 0,
  ) -> jax.Array:
    """Returns the rows [J, K] that follow a row `above` [K], driven by
    `drivers` [J] token ids; cells from `num_cells` on are 0. `operand` [K] or
    [J, K] is what the machine reads in every row, if anything."""
    machine, count = row_machine(self), len(self.cells)
    index = np.zeros(max(self.drivers) + 1, np.int32)
    index[list(self.drivers)] = range(len(self.drivers))
    tables = jnp.array([machine.next_states, machine.cells], jnp.int32)
    inside = jnp.arange(len(above)) < num_cells
    # The operand is read at the cell that is written.
    operand = jnp.broadcast_to(operand, (len(drivers), len(above)))
    operand = jnp.pad(operand, ((0, 0), (self.ahead, 0))) * count

    def next_row(above, inputs):
      driver, operand = inputs
      driver = jnp.asarray(index)[driver]
      next_states, cells = tables[:, driver]

      def read(state, symbol):
        return next_states[state, symbol], cells[state, symbol]

      symbols = operand + jnp.pad(above, (0, self.ahead))
      _, row = jax.lax.scan(read, jnp.asarray(machine.start)[driver], symbols)
      row = jnp.where(inside, row[self.ahead :], 0)
      return row, row

    above = jnp.asarray(above, jnp.int32)
    return jax.lax.scan(next_row, above, (drivers, operand))[1]

  def grid_tokens(
    self, cells: jax.Array, num_rows: Array, num_cells: Array, segment: int
  ) -> Tokens:
    """Returns the segment of the first rows of [J, K] and their first cells;
    behind the output there is the end token, if any, where a row would
    begin."""
    end = self.end if segment == self.target_segment else None
    last = num_rows * num_cells
    has_end = end is not None
    place = jnp.arange(cells.size + has_end)
    j, k = place // num_cells, place % num_cells
    ids = cells[jnp.minimum(j, len(cells) - 1), k]
    ends = num_rows - 1 + has_end - j, num_cells - 1 - k
    return Tokens(
      ids=ids if end is None else jnp.where(place == last, end, ids),
      length=jnp.asarray(last + has_end, jnp.int32),
      segment=jnp.full(place.shape, segment, jnp.int32),
      left=jnp.stack([j, k], axis=1).astype(jnp.int32),
      right=jnp.stack(ends, axis=1).astype(jnp.int32),
      digit=jnp.full(place.shape, True),
    )

  def items_with_row(
    self, above: list[int] | None, operand: list[int], driver: int | None
  ) -> list[list[int]] | None:
    """Returns the operands of an input in which the row `above` stands above
    one that `driver` drives (None: above the end token); `above` is None for
    the first row. `operand` is the row that the machine reads beside it or, if
    there is none, as many cells. None if there is no such input, or none is
    known."""
    return None


def _call(task: GridTask, method: str, *arguments: Any) -> Any:
  """Returns what a method of a task returns, which must be hashable."""
  try:
    result = getattr(task, method)(*arguments)
    hash(result)
    return result
  except Exception as error:  # a context around each call would take longer
    with user_errors(f"{task.name}: {method}{arguments}"):
      raise error


@functools.cache
def row_machine(task: GridTask) -> Machine:
  """Returns the machine of a task's `first_state`, `write` and `accepts`."""
  count = len(task.cells)
  is_operand_read = task.operand_in in ("every", "own")
  symbols = [*itertools.product(range(count), repeat=1 + is_operand_read)]
  starts = [_call(task, "first_state", driver) for driver in task.drivers]
  check(None not in starts, f"{task.name}: first_state must not return None")
  check_choice(f"{task.name}: ahead", task.ahead, (0, 1))
  states, written = [*dict.fromkeys(starts)], []
  numbers = {state: i for i, state in enumerate(states)}
  for state in states:  # grows while it is read
    for driver, symbol in itertools.product(task.drivers, symbols):
      result = _call(task, "write", state, driver, *symbol)
      match result:
        case None if task.operand_in != "own":
          after, cell = None, 0
        case after, (int() | np.integer()) as cell if 0 <= cell < count:
          pass
        case _:
          raise UsageError(
            f"{task.name}: write{(state, driver, *symbol)} returns {result!r},"
            f" and not the next state and a cell from 0 to {count - 1}"
          )
      if after is not None and after not in numbers:
        numbers[after] = len(states)
        states.append(after)
      written.append((numbers.get(after, -1), cell))
    check(
      len(states) <= MAX_STATES,
      f"{task.name}: its machine has more than {MAX_STATES} states",
    )
  shape = len(states), len(task.drivers), len(symbols), 2
  tables = np.array(written).reshape(shape).transpose(3, 1, 0, 2)
  next_states, cells = np.pad(tables, ((0, 0), (0, 0), (0, 1), (0, 0)))
  next_states[:, -1] = -1  # a row that cannot occur goes on as it is
  return Machine(
    symbols=np.array(symbols),
    start=np.array([numbers[state] for state in starts]),
    next_states=next_states % (len(states) + 1),
    cells=cells,
    accepting=np.array([*(_call(task, "accepts", x) for x in states), False]),
  )
