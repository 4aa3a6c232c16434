"""All tasks and hints by name.

The package's own are listed here; users register theirs from their own files
(lengthgen_jax.register).
"""

from lengthgen_jax.errors import check
from lengthgen_jax.registry import Registry, check_attributes
from lengthgen_jax.tasks import (
  addition,
  copying,
  dyck,
  increment,
  modular,
  multiply,
  multiply_long,
  parity,
  permutations,
  sorting,
  sorting_hints,
  successor,
)
from lengthgen_jax.tasks.task import Task

# What a class of a task must have, beside the methods that Task leaves open.
PARTS = ("name", "section", "segments", "test_sets", "vocab_size")
METHODS = ("num_random", "example", "from_items")


def check_task(name: str, task: type) -> None:
  """Raises UsageError if a class lacks a part of the contract of tasks."""
  is_task = isinstance(task, type) and issubclass(task, Task)
  check(is_task, f"register: {name!r} is no subclass of lengthgen_jax's Task")
  check_attributes("task", name, task, PARTS)
  missing = [m for m in METHODS if getattr(task, m) is getattr(Task, m)]
  check(not missing, f"register: task {name!r} has no {', '.join(missing)}()")


TASKS = Registry(
  "task",
  {
    "successor": successor.Successor,
    "addition": addition.Addition,
    "multiply": multiply.Multiply,
    "multiply_long": multiply_long.MultiplyLong,
    "parity": parity.Parity,
    "parity_classification": parity.ParityClassification,
    "sort": sorting.Sort,
    "increment": increment.Increment,
    "modular": modular.Modular,
    "permutations": permutations.Permutations,
    "dyck": dyck.Dyck,
    "copy": copying.Copy,
    "reverse": copying.Reverse,
  },
  check_task,
)

# Auxiliary tasks by main task: each is an ordinary task with a head of its own.
HINTS = {
  main: Registry(f"hint of {main}", hints, check_task)
  for main, hints in {
    "sort": {
      "successor": sorting_hints.SuccessorHint,
      "count": sorting_hints.CountHint,
      "fill": sorting_hints.FillHint,
      "predecessor": sorting_hints.PredecessorHint,
      "minimum": sorting_hints.MinimumHint,
    },
    "increment": {"carry": increment.CarryHint},
  }.items()
}
