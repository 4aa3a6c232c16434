"""Writes down the transducer of a task as a table: plain data that the card of
a model has and proofs/checker.py reads.

A table says how examples are laid out (the segments, marks and zeros of the
prompt, the tokens before and after the output) and has the transducer as
numbers: for each symbol the tokens of the long operands (the first symbol is
that of zeros), and for each digit of the short operand, or once if there is
none, the next states, outputs and accepting states of a machine whose state 0
is the first.
"""

import functools
import itertools
from typing import Any

import jax
import numpy as np

from lengthgen_jax.compilation import jit_unoptimized
from lengthgen_jax.errors import check
from lengthgen_jax.proofs import checker
from lengthgen_jax.tasks.arithmetic import ArithmeticTask
from lengthgen_jax.tasks.grid import GridTask
from lengthgen_jax.tasks.numbers import NumberTask
from lengthgen_jax.tasks.task import Size, Task

LENGTHS = (1, 2, 5)  # of the examples that a table is compared with
EXAMPLES = 30  # of each length


def obstacle(task: Task) -> str:
  """Returns why a task has no table, "" if it has one."""
  if isinstance(task, NumberTask) and task.is_constrained:
    return (
      f"{task.name} excludes operands (its method constrain), and a proof is"
      " about all of them"
    )
  if not (task.transducer or isinstance(task, GridTask)):
    return (
      f"{task.name} is no transducer, its outputs depend on more than the"
      " digits and outputs up to their place"
    )
  return ""


def interleaved(task: Task) -> bool:
  """Returns whether two operands are interleaved in one segment."""
  return isinstance(task, ArithmeticTask) and task.interleaved


@functools.cache
def table(task: Task) -> dict[str, Any] | None:
  """Returns the table of a task, compared with examples; None if an `obstacle`
  is in its way."""
  if obstacle(task):
    return None
  has_marks = task.end is not None
  marks = [task.start]
  if isinstance(task, NumberTask) and task.operands == 2:
    marks.append(int(task.encode(task.operator)[0]))
  data = {
    "segments": list(task.segments),
    "marks": marks if has_marks else [],
    "start": int(task.start),
    "delimiter": int(task.delimiter),
    "end": task.end,
    "slack": task.slack,
    "direction": 1 if task.anchor == "left" else -1,
  }
  if isinstance(task, GridTask):
    return data | grid_of(task)
  zero, num_long = task.first_item, len(task.long_operands)
  digits = range(zero, zero + task.base)
  symbols = [*itertools.product(digits, repeat=num_long)]
  machines = [
    machine(task, symbols, digit)
    for digit in (digits if task.short_operand else (None,))
  ]
  data |= {
    "layout": "interleaved" if interleaved(task) else "sequence",
    "symbols": [list(symbol) for symbol in symbols],
    "machines": machines,
  }
  for length in LENGTHS:
    check_examples(task, data, length)
  return data


def grid_of(task: GridTask) -> dict[str, Any]:
  """Returns what only the table of a grid has, and its machines."""
  tables = task.row_machine
  start, next_states, cells, accepting = (x.tolist() for x in tables[1:])
  return {
    "layout": "grid",
    "ahead": task.ahead,
    "operand": task.operand_in,
    "symbols": tables.symbols.tolist(),
    "machines": [
      reachable(driver, start[d], next_states[d], cells[d], accepting)
      for d, driver in enumerate(task.drivers)
    ],
  }


def reachable(driver, start, next_states, cells, accepting) -> dict[str, Any]:
  """Returns a machine of those states alone that can be reached, the first one
  first."""
  states = [start]
  for state in states:  # grows while it is read
    states += [x for x in dict.fromkeys(next_states[state]) if x not in states]
  number = {state: i for i, state in enumerate(states)}
  return {
    "short": driver,
    "next": [[number[x] for x in next_states[state]] for state in states],
    "outputs": [cells[state] for state in states],
    "accepting": [accepting[state] for state in states],
  }


def check_examples(task: Task, data: dict[str, Any], length: int) -> None:
  """Checks that random examples of a length are laid out as the table says, and
  have its outputs."""
  rng, width = np.random.default_rng(length), task.natural_width(length)
  layout = checker.make_task(data, 1 << 30, has_source=True)
  last_column = width if layout.marks else length + layout.slack - 1
  prompt, output = layout.sequence(last_column, 0)
  zero, num_long = task.first_item, layout.num_long
  bound = task.natural_width(max(LENGTHS))  # so that one program serves all
  shape = EXAMPLES, task.operands, bound
  items = np.full(shape, zero, np.int32)
  items[..., :length] += rng.integers(task.base, size=(*shape[:2], length))
  items[:, num_long:, 1:] = zero  # the short operand is one digit
  lengths = np.full(task.operands, length, np.int32)
  examples = _examples(task, items, lengths, np.int32(width), bound)
  examples = jax.tree.map(lambda x: np.asarray(x).tolist(), examples)
  for i, item in enumerate(items.tolist()):
    values = values_of(data, layout, item, length + layout.slack)
    parts = zip((prompt, output), examples[:2], strict=True)
    for expected, tokens in parts:
      ids, count, segment, left, right, _ = (x[i] for x in tokens)
      rows = zip(segment, map(tuple, left), map(tuple, right), ids, strict=True)
      stated = [
        (*place_of(layout, token), values.get(token.id, token.id))
        for token in expected
      ]
      check(
        [*rows][:count] == stated and not np.any(examples.prefix_length),
        f"{task.name}: an example of length {length} is not what its transducer"
        " (states, step, anchor, slack, first_item) says",
      )


def place_of(layout, token) -> tuple[int, tuple, tuple]:
  """Returns the segment of a checker's token in the program, and its offsets
  from both ends."""
  segment, left, right, _ = token
  if not layout.is_interleaved:
    return segment, left, right
  if segment == layout.num_operands:
    return 1, left, right
  return 0, (2 * left[0] + segment,), (2 * right[0] + 1 - segment,)


@jit_unoptimized(0, 4)
def _examples(task, items, lengths, width, bound):
  size = Size(lengths, width, bound)
  return jax.vmap(lambda x: task.from_items(x, size))(items)


def values_of(data, layout, items, num_columns) -> dict[tuple, int]:
  """Returns {variable: token} of an example, given its items [operands, n]."""
  values: dict[tuple, int] = {
    ("in", k, p): token
    for k, digits in enumerate(items)
    for p, token in enumerate(digits)
  }
  short = items[-1][0] if layout.num_long < len(items) else None
  (machine,) = (x for x in data["machines"] if x["short"] == short)
  state = 0
  for p in range(num_columns):
    column = [
      values.get(("in", k, p), layout.zeros[k]) for k in range(layout.num_long)
    ]
    symbol = data["symbols"].index(column)
    values["out", p] = machine["outputs"][state][symbol]
    state = machine["next"][state][symbol]
  return values


def machine(task, symbols, short) -> dict[str, Any]:
  """Returns the machine of a task, of those states that can be reached; `short`
  is the digit of its short operand, None if it has none."""
  count, next_states, outputs = len(symbols), {}, {}
  columns = [np.array(column) for column in zip(*symbols, strict=True)]
  if short is not None:
    columns.insert(1, np.full(count, short))
  for state in task.states:
    step = task.step(np.full(count, state), tuple(columns))
    next_states[state], outputs[state] = (
      np.broadcast_to(x, count).tolist() for x in step
    )
  accepting = dict.fromkeys(task.states, True)
  return reachable(short, task.initial_state, next_states, outputs, accepting)
