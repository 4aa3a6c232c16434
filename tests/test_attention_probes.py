"""Where models of numbers look: on weights that were made by hand."""

import functools
import math
import types

import jax
import numpy as np
import pytest
import untrained

from lengthgen_jax.probes import attention_probes
from lengthgen_jax.probes.activations import Observation
from lengthgen_jax.tasks.packing import KINDS

TEXTS = {
  "addition": "345+678",
  "multiply": "345*7",
  "successor": "345",
  "increment": "345",
}
OUTPUT = "output"


@functools.cache
def example(task: str, kind: str):
  """(experiment, batch) of three digits."""
  experiment = untrained.experiment(task, kind)
  batch = untrained.typed(experiment, TEXTS[task], width=5)
  return experiment, jax.device_get(batch)


def observed(weight, task="addition", kind=KINDS[0]) -> Observation:
  """A model of one head per site with the given attention.

  Args:
    weight: function of a row's place, and of the operand (or OUTPUT) and the
      place of the digit that a key holds.
    task, kind: of the model.
  """
  experiment, batch = example(task, kind)
  model = types.SimpleNamespace(experiment=experiment)
  target, block = experiment.task.target_segment, {}
  for site, keys in (("self", batch.keys), ("cross", batch.source_keys)):
    if keys is None:
      continue
    weights = np.zeros((1, 1, batch.inputs.shape[1], len(keys.index)))
    for t, s in np.ndindex(weights.shape[2:]):
      row, segment = int(batch.rows.left[0, t, 0]), int(keys.segment[0, s])
      left, right = int(keys.left[0, s, 0]), int(keys.right[0, s, 0])
      digit = (OUTPUT, left) if segment == target else None
      if segment < target:
        digit = experiment.task.operand_place(segment, left, right)
      if digit is not None:
        weights[0, 0, t, s] = weight(row, *digit)
    block[f"{site}_attention"] = {"weights": weights}
  model.observe = lambda _: (None, {"decoder_0": block})
  return Observation(model, batch, 1, 3)


def shares(weight, *args) -> tuple[float, float]:
  """Attention on the row's place and on the carry's source, of all sites."""
  probes = attention_probes.same_place, attention_probes.carry
  found = (probe(observed(weight, *args)) for probe in probes)
  return tuple(sum(mean.value for mean in means) for means in found)


MODELS = [*((task, KINDS[0]) for task in TEXTS), ("addition", KINDS[1])]


@pytest.mark.parametrize(("task", "kind"), MODELS)
def test_shares_are_on_the_digits_of_a_row_and_of_the_one_before(task, kind):
  """Of the first operand, or of the outputs."""
  weights = {
    (1.0, 0.0): lambda row, part, d: (part == 0) * (d == row),
    (0.0, 1.0): lambda row, part, d: (part == 0) * (d == row - 1),
    (0.0, 1.0, OUTPUT): lambda row, part, d: (part == OUTPUT) * (d == row - 1),
    (0.0, 0.0): lambda row, part, d: (part == 0) * (d == row + 1),
    (0.5, 0.25): lambda row, part, d: (
      (part == 0) * (0.5 * (d == row) + 0.25 * (d == row - 1))
    ),
  }
  for expected, weight in weights.items():
    assert shares(weight, task, kind) == pytest.approx(expected[:2])


def test_entropy_is_that_of_as_many_keys():
  even = observed(lambda row, part, d: (part == 0) / 5, "successor")
  (cross,) = [x for x in attention_probes.entropy(even) if x.part == "cross"]
  assert cross.value == pytest.approx(math.log(5))
  one = observed(lambda row, part, d: part == 0 and d == row, "successor")
  assert [mean.value for mean in attention_probes.entropy(one)] == [0.0]
