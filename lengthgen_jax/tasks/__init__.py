"""All tasks and hints by name.

The package's own are here; users register theirs from their own files
(lengthgen_jax.register).
"""

import dataclasses
import inspect
from typing import Any

from lengthgen_jax.errors import check
from lengthgen_jax.registry import Registry, check_methods
from lengthgen_jax.tasks import (
  arithmetic,
  automata,
  grid,
  increment,
  local_rules,
  multiply_long,
  numbers,
  recall,
  sorting,
)
from lengthgen_jax.tasks.task import Task


def task_fields(task: type[Task]) -> dict[str, Any]:
  """Returns the fields of a task's section of the config, with defaults."""
  return {field.name: field.default for field in dataclasses.fields(task)}


def check_task(name: str, task: Any) -> None:
  """Raises UsageError if a task or hint that a user registers as `name` is no
  subclass of Task, lacks an attribute or a method, or has one that does not
  fit."""
  is_task = isinstance(task, type) and issubclass(task, Task)
  check(is_task, f"register: {name!r} is no subclass of lengthgen_jax's Task")
  absent = sorted(task.__abstractmethods__)
  absent += [part for part in ("name", "test_sets") if not hasattr(task, part)]
  if issubclass(task, arithmetic.ArithmeticTask | automata.SequenceTask):
    absent += [
      part
      for part in ("states", "step")
      if getattr(task, part) is getattr(Task, part)
    ]
  check(not absent, f"register: task {name!r} has no {', '.join(absent)}")
  check(
    isinstance(task.test_sets, dict),
    f"register: the test_sets of task {name!r} are no dict",
  )
  for base in (Task, numbers.NumberTask, grid.GridTask):
    if issubclass(task, base):
      check_methods(f"task {name!r}", task, base)
  fields = [
    field
    for field, kind in inspect.get_annotations(task).items()
    if "ClassVar" not in str(kind)
  ]
  is_declared = "__dataclass_fields__" in vars(task) or not fields
  check(
    is_declared and dataclasses.MISSING not in task_fields(task).values(),
    f"register: task {name!r} has fields ({', '.join(fields)}): decorate it"
    " with @dataclasses.dataclass(frozen=True), and give each a default",
  )
  registries = TASKS, *HINTS.values()
  for registered, other in (x for tasks in registries for x in tasks.items()):
    check(
      (registered, other.name) == (name, task.name)  # it is registered again
      or other.section != task.section
      or task_fields(other) == task_fields(task),
      f"register: task {name!r} has other fields than {registered!r}, whose"
      f" config section {task.section!r} it shares; give it a section of its"
      " own",
    )
  if issubclass(task, arithmetic.ArithmeticTask):
    check(
      (task.operands, task.base) in ((1, 2), (1, 10), (2, 10)),
      f"register: task {name!r} has {task.operands} operands in base"
      f" {task.base}: choose one or two in base 10, or one in base 2",
    )
    sign, taken = task.operator, "0123456789$&@="
    is_sign = len(sign) == 1 and not sign.isspace() and sign not in taken
    check(
      is_sign if task.operands == 2 else not sign,
      f"register: task {name!r} of {task.operands} operands has operator"
      f" {sign!r}: choose '' for one operand, for two a sign like '-', but none"
      f" of {taken}",
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
    "automaton": local_rules.Automaton,
    "turing": local_rules.Turing,
    "insertion_sort": local_rules.InsertionSort,
    "base": local_rules.Base,
    "divide": local_rules.Divide,
    "halving": local_rules.Halving,
    "many_addends": local_rules.ManyAddends,
    "outer_product": local_rules.OuterProduct,
  },
  check_task,
)

# Auxiliary tasks by main task: each is an ordinary task with a head of its own.
_HINTS = {
  "addition": {
    "no_carry": arithmetic.NoCarry,
    "carry_only": arithmetic.CarryOnly,
  },
  "sort": {
    "successor": sorting.SuccessorHint,
    "count": sorting.CountHint,
    "fill": sorting.FillHint,
    "predecessor": sorting.PredecessorHint,
    "minimum": sorting.MinimumHint,
  },
  "increment": {"carry": increment.CarryHint},
  "reverse": {"copy": automata.Copy, "shifted": automata.ShiftedReverse},
}
HINTS = {
  main: Registry(f"hint of {main}", hints, check_task)
  for main, hints in _HINTS.items()
}
