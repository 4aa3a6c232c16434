"""This module writes down the transducer of a task as a table: plain data, which
the card of a model has, and which pretrained/checker.py reads.

A table says how examples are laid out (the segments, marks and zeros of the
prompt, the tokens before and after the output) and has the transducer as
numbers: for each symbol the tokens of the long operands (the first symbol is
that of zeros), and for each digit of the short operand, or once if there is
none, the next states, outputs and accepting states of a machine whose state 0
is the first.
"""

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np

from lengthgen_jax.errors import check
from lengthgen_jax.pretrained import checker
from lengthgen_jax.tasks.multiply_long import MultiplyLong, RunningSum
from lengthgen_jax.tasks.task import Example, Size, Task, Tokens

LENGTHS = (1, 2, 3, 5, 8)  # of the examples that a table is compared with
EXAMPLES = 20  # of each length


def table(task: Task) -> dict[str, Any] | None:
  """Returns the table of a task; None if it has no transducer, or its operands
  alternate.

  Raises:
    UsageError: examples of the task are not what the table says.
  """
  is_grid = isinstance(task, MultiplyLong)
  if not (is_grid or task.transducer) or getattr(task, "interleaved", False):
    return None
  short = 1 in task.shared_operands or is_grid
  num_long = task.operands - (1 in task.shared_operands)
  zero = task.first_item
  digits = range(zero, zero + task.base)
  long = 2 if is_grid else num_long  # a, and the row before
  symbols = [*itertools.product(digits, repeat=long)]
  machines = [
    machine(task, symbols, digit) for digit in (digits if short else (None,))
  ]
  has_marks = task.end is not None
  marks = [task.start]
  if has_marks and task.operands == 2:
    marks.append(int(task.encode(task.operator)[0]))
  data = {
    "layout": "grid" if is_grid else "sequence",
    "segments": list(task.segments),
    "marks": marks if has_marks else [],
    "start": int(task.start),
    "delimiter": int(task.delimiter),
    "end": task.end,
    "slack": 0 if is_grid else task.slack,
    "direction": 1 if task.anchor == "left" else -1,
    "symbols": [list(symbol) for symbol in symbols],
    "machines": machines,
  }
  return data


def machine(task, symbols, short) -> dict[str, Any]:
  """Returns the machine of a task whose short operand, if it has one, is the
  digit `short`: those of its states that can be reached."""
  accepting = lambda state: True
  step_task, initial = task, task.initial_state
  if isinstance(task, MultiplyLong):
    step_task = RunningSum(is_first=False, end=task.end)
    # Before place 0, where no digit of a is read, both numbers are zero so far.
    initial = RunningSum.BOTH_ZERO
    accepting = lambda state: state % 3 != RunningSum.NOT_LESS
  count = len(symbols)
  columns = [np.array(column) for column in zip(*symbols, strict=True)]
  if short is not None:
    columns.insert(1, np.full(count, short))
  states, rows = [initial], []
  for state in states:  # grows while it is read
    next_states, outputs = step_task.step(np.full(count, state), tuple(columns))
    row = np.broadcast_to(next_states, count).tolist()
    states += [x for x in dict.fromkeys(row) if x not in states]
    rows.append((row, np.broadcast_to(outputs, count).tolist()))
  return {
    "short": short,
    "next": [[states.index(x) for x in row] for row, _ in rows],
    "outputs": [outputs for _, outputs in rows],
    "accepting": [accepting(state) for state in states],
  }
