"""Lists all tasks and hints by name.

The package's own are here; users register theirs from their own files
(lengthgen_jax.register).
"""

from typing import Any

from lengthgen_jax.errors import check
from lengthgen_jax.registry import Registry, check_methods
from lengthgen_jax.tasks import (
  arithmetic,
  automata,
  increment,
  multiply_long,
  recall,
  sorting,
)
from lengthgen_jax.tasks.task import Task

OPERATORS = ("+", "*")  # of arithmetic tasks of two operands


def check_task(name: str, task: Any) -> None:
  """Checks a task or hint that a user registers.

  Args:
    name: what it is registered as.
    task: what is registered.

  Raises:
    UsageError: it is no subclass of Task, lacks an attribute or a method, or
      has one that does not fit.
  """
  is_task = isinstance(task, type) and issubclass(task, Task)
  check(is_task, f"register: {name!r} is no subclass of lengthgen_jax's Task")
  absent = sorted(task.__abstractmethods__)
  absent += [
    part for part in ("section", "test_sets") if not hasattr(task, part)
  ]
  if issubclass(task, arithmetic.ArithmeticTask | automata.SequenceTask):
    absent += [
      part
      for part in ("states", "step")
      if getattr(task, part) is getattr(Task, part)
    ]
  check(not absent, f"register: task {name!r} has no {', '.join(absent)}")
  check_methods(f"task {name!r}", task, Task)
  fields = [
    field
    for field, kind in vars(task).get("__annotations__", {}).items()
    if "ClassVar" not in str(kind)
  ]
  check(
    "__dataclass_fields__" in vars(task) or not fields,
    f"register: task {name!r} has fields ({', '.join(fields)}): decorate it"
    " with @dataclasses.dataclass(frozen=True)",
  )
  if issubclass(task, arithmetic.ArithmeticTask):
    check(
      task.operator in (OPERATORS if task.operands == 2 else ("",)),
      f"register: task {name!r} of {task.operands} operands has operator"
      f" {task.operator!r}: choose '' for one operand,"
      f" {' or '.join(OPERATORS)} for two",
    )


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
    "mqmtar": recall.Recall,
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
