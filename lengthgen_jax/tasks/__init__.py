"""Tasks: pure samplers from a key to a batch of examples."""

from lengthgen_jax.tasks.addition import Addition
from lengthgen_jax.tasks.multiply import Multiply
from lengthgen_jax.tasks.parity import Parity, ParityClassification
from lengthgen_jax.tasks.successor import Successor

TASKS = {
  task.name: task
  for task in (Successor, Addition, Multiply, Parity, ParityClassification)
}
