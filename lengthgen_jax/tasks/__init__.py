"""Tasks, by name: one file each, and a line here."""

from lengthgen_jax.tasks import (
  addition,
  increment,
  multiply,
  multiply_long,
  parity,
  sorting,
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
