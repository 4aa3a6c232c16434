"""Tasks: pure samplers from a key to a batch of examples."""

from lengthgen_jax.tasks import increment, sorting
from lengthgen_jax.tasks.addition import Addition
from lengthgen_jax.tasks.multiply import Multiply
from lengthgen_jax.tasks.parity import Parity, ParityClassification
from lengthgen_jax.tasks.successor import Successor

ARITHMETIC = {
  task.name: task
  for task in (Successor, Addition, Multiply, Parity, ParityClassification)
}
SEQUENCES = {task.name: task for task in (sorting.Sort, increment.Increment)}
TASKS = ARITHMETIC | SEQUENCES

# Auxiliary tasks by main task: each is an ordinary task with a head of its own.
HINTS = {
  "sort": {
    "successor": sorting.SuccessorHint,
    "count": sorting.CountHint,
    "fill": sorting.FillHint,
    "predecessor": sorting.PredecessorHint,
    "minimum": sorting.MinimumHint,
  },
  "increment": {"carry": increment.CarryHint},
}
