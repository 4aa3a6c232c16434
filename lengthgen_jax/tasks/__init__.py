"""Lists all tasks and hints by name.

Each task has a file of its own and a line here.
"""

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

TASKS = {
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
}

# Auxiliary tasks by main task: each is an ordinary task with a head of its own.
HINTS = {
  "sort": {
    "successor": sorting_hints.SuccessorHint,
    "count": sorting_hints.CountHint,
    "fill": sorting_hints.FillHint,
    "predecessor": sorting_hints.PredecessorHint,
    "minimum": sorting_hints.MinimumHint,
  },
  "increment": {"carry": increment.CarryHint},
}
