"""All tasks and hints by name.

The package's own are listed here; users register theirs from their own files
(lengthgen_jax.register).
"""

from typing import Any

from lengthgen_jax.errors import check
from lengthgen_jax.registry import Registry
from lengthgen_jax.tasks import (
  arithmetic,
  automata,
  increment,
  multiply_long,
  sorting,
)
from lengthgen_jax.tasks.task import Task

REQUIRED = (
  *("name", "section", "segments", "test_sets", "vocab_size"),
  *("num_random", "example", "from_items"),
)


def check_task(name: str, task: Any) -> None:
  """Raises UsageError if a class lacks a part of the contract of tasks."""
  is_task = isinstance(task, type) and issubclass(task, Task)
  check(is_task, f"register: {name!r} is no subclass of lengthgen_jax's Task")
  inherited = lambda part: (
    getattr(task, part, None) is getattr(Task, part, None)
  )
  missing = ", ".join(filter(inherited, REQUIRED))
  check(not missing, f"register: task {name!r} has no {missing}")


TASKS = Registry(
  "task",
  {
    "successor": arithmetic.Successor,
    "addition": arithmetic.Addition,
    "multiply": arithmetic.Multiply,
    "multiply_long": multiply_long.MultiplyLong,
    "parity": arithmetic.Parity,
    "parity_classification": arithmetic.ParityClassification,
    "sort": sorting.Sort,
    "increment": increment.Increment,
    "modular": automata.Modular,
    "permutations": automata.Permutations,
    "dyck": automata.Dyck,
    "copy": automata.Copy,
    "reverse": automata.Reverse,
  },
  check_task,
)

# Auxiliary tasks by main task: each is an ordinary task with a head of its own.
HINTS = {
  "sort": Registry(
    "hint of sort",
    {
      "successor": sorting.SuccessorHint,
      "count": sorting.CountHint,
      "fill": sorting.FillHint,
      "predecessor": sorting.PredecessorHint,
      "minimum": sorting.MinimumHint,
    },
    check_task,
  ),
  "increment": Registry(
    "hint of increment", {"carry": increment.CarryHint}, check_task
  ),
}
