"""Tasks, by name: one file each, and a line here."""

from lengthgen_jax.tasks import increment, sorting
from lengthgen_jax.tasks.addition import Addition
from lengthgen_jax.tasks.multiply import Multiply
from lengthgen_jax.tasks.parity import Parity, ParityClassification
from lengthgen_jax.tasks.successor import Successor

TASKS = {
  "successor": Successor,
  "addition": Addition,
  "multiply": Multiply,
  "parity": Parity,
  "parity_classification": ParityClassification,
  "sort": sorting.Sort,
  "increment": increment.Increment,
}

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
