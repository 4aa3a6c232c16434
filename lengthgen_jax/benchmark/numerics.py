"""This module checks that this device computes the same numbers as the CPU, up
to rounding.

  python -m lengthgen_jax.benchmark.numerics

prints a table of the relative differences of attention and of a training step's
loss and gradients, with dense and with sparse attention, and exits with code 1
if one exceeds TOLERANCE.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention.kernel import (
  CLOSED,
  DenseBias,
  SparseBias,
  attend,
)
from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.benchmark.cases import (
  MAIN_JOB,
  Workload,
  first_stage,
  retraining,
)
from lengthgen_jax.training.train_step import (
  TrainSpec,
  draw_batches,
  loss_fn,
)

# The greatest relative difference that is allowed between results in float32
# with precision "highest".
TOLERANCE = 1e-4


class Computation(NamedTuple):
  """A Computation is what two devices run, so that their results can be
  compared.

  Attributes:
    name: what is computed, for the table.
    function: a function of `arguments` that jax.jit can compile. It returns a
      tuple of parts, which are pytrees of arrays.
    arguments: pytrees of NumPy arrays.
  """

  name: str
  function: Callable
  arguments: tuple


class Comparison(NamedTuple):
  """A Comparison says how far apart the results of two devices are.

  Attributes:
    name: what was computed.
    difference: the greatest `relative_difference` of two parts.
    is_close: whether the difference is at most TOLERANCE; not if it is NaN.
  """

  name: str
  difference: float
  is_close: bool


def compare(
  computation: Computation, device: jax.Device, reference: jax.Device
) -> Comparison:
  """Runs a computation on a device and on a reference device, and compares the
  results."""
  results = []
  for jax_device in (device, reference):
    with jax.default_device(jax_device):
      arguments = jax.device_put(computation.arguments, jax_device)
      results.append(jax.device_get(jax.jit(computation.function)(*arguments)))
  differences = [
    relative_difference(*parts) for parts in zip(*results, strict=True)
  ]
  # This is NaN if any difference is; Python's max would not be.
  difference = float(np.max(differences))
  return Comparison(computation.name, difference, difference <= TOLERANCE)


def relative_difference(x: Any, y: Any) -> float:
  """Returns the greatest absolute difference of two pytrees of arrays, divided
  by the greatest absolute value in the second.

  The arrays of a pytree are compared by one scale because some gradients are
  zero but for rounding: softmax does not depend on the key's bias.
  """
  flatten = lambda tree: np.concatenate(
    [np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(tree)]
  )
  x, y = flatten(x), flatten(y)
  return float(np.abs(x - y).max() / max(np.abs(y).max(), 1e-30))


def attention(is_sparse: bool) -> Computation:
  """Returns the computation of attention on random inputs.

  A random bias closes half of the cells. It is dense, or sparse: then each row
  sees at most 6 of the keys, which are random.
  """
  rng = np.random.default_rng(0)
  batch, heads, rows, keys, head_dim, keys_of_row = 4, 8, 96, 128, 32, 6
  draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
  query = draw(batch, heads, rows, head_dim)
  key, value = draw(2, batch, heads, keys, head_dim)
  cells_of_row = keys_of_row if is_sparse else keys
  values = draw(1, heads, rows, cells_of_row)
  values[rng.random(values.shape) < 0.5] = CLOSED
  if is_sparse:
    permutations = rng.random((1, heads, rows, keys)).argsort(axis=-1)
    bias = SparseBias(values, permutations[..., :keys_of_row].astype(np.int32))
  else:
    bias = DenseBias(values)
  function = lambda query, key, value, bias: (
    attend(query, key, value, bias, None, "highest")[0],
  )
  name = "sparse attention" if is_sparse else "dense attention"
  return Computation(name, function, (query, key, value, bias))


def training_step(name: str, workload: Workload) -> Computation:
  """Returns the computation of the loss and gradients of a training step with
  random parameters.

  Attention is along lines where Experiment.supports_sparse is True, else dense.
  """
  experiment = workload.experiment
  spec = TrainSpec(experiment, workload.train, workload.plan_along_lines)
  step_spec = experiment.step_specs[0]

  def loss_and_gradients(params: dict, scaffold: dict) -> tuple:
    batches = draw_batches(spec, step_spec, jnp.int32(0), jnp.int32(0))
    gradient_fn = jax.value_and_grad(loss_fn, has_aux=True)
    (loss, _), grads = gradient_fn(params, spec, step_spec, batches, scaffold)
    return loss, grads

  scaffold = jax.device_get(of_seed(workload.scaffold, 0))
  params = jax.device_get(workload.params())
  return Computation(name, loss_and_gradients, (params, scaffold))


def computations() -> list[Computation]:
  """Returns all computations of the table."""
  return [
    attention(is_sparse=False),
    attention(is_sparse=True),
    training_step("training step, dense", first_stage(MAIN_JOB)),
    training_step("training step along lines", retraining(MAIN_JOB)),
  ]


def main() -> int:
  """Prints the table, and returns the exit code: 1 if a difference exceeds
  TOLERANCE, else 0."""
  device, reference = jax.devices()[0], jax.devices("cpu")[0]
  print(f"{device.device_kind} beside the CPU, float32, precision highest:")
  comparisons = [
    compare(computation, device, reference) for computation in computations()
  ]
  for name, difference, is_close in comparisons:
    verdict = "" if is_close else f"  exceeds {TOLERANCE:g}"
    print(f"{name:<28}{difference:.2e}{verdict}")
  return int(not all(comparison.is_close for comparison in comparisons))


if __name__ == "__main__":
  sys.exit(main())
