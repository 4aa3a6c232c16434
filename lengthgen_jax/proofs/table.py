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

import numpy as np

from lengthgen_jax.tasks.arithmetic import ArithmeticTask
from lengthgen_jax.tasks.grid import GridTask, row_machine
from lengthgen_jax.tasks.numbers import NumberTask
from lengthgen_jax.tasks.task import Task


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


@functools.cache
def table(task: Task) -> dict[str, Any] | None:
  """Returns the table of a task; None if an `obstacle` is in its way."""
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
  is_interleaved = isinstance(task, ArithmeticTask) and task.interleaved
  return data | {
    "layout": "interleaved" if is_interleaved else "sequence",
    "symbols": [list(symbol) for symbol in symbols],
    "machines": machines,
  }


def grid_of(task: GridTask) -> dict[str, Any]:
  """Returns what only the table of a grid has, and its machines."""
  tables = row_machine(task)
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
