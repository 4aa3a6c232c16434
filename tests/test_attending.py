"""Where models of numbers look: on weights that were made by hand."""

import dataclasses
import functools
import math
import types

import numpy as np
import pytest
import untrained

from lengthgen_jax.attention.lines import Lines
from lengthgen_jax.probes import attention_probes
from lengthgen_jax.probes.activations import Seen
from lengthgen_jax.tasks.packing import KINDS

TEXT = {
  "addition": "345+678",
  "multiply": "345*7",
  "successor": "345",
  "increment": "345",
}


@functools.cache
def example(task: str, kind: str):
  """(experiment, batch) of three digits."""
  built = untrained.experiment(task, kind)
  return built, untrained.typed(built, TEXT[task], width=5)


def look(task: str, kind: str, at) -> Seen:
  """A model of one head per site that looks where it is told to.

  Args:
    task, kind: of the model.
    at: function of (row's digit, operand or "said", digit) of each key, its
      weight.
  """
  built, batch = example(task, kind)
  model = types.SimpleNamespace(experiment=built)
  target = built.task.target_segment
  blocks = [{}]
  sites = {"self": batch.keys} | (
    {"cross": batch.source_keys} if batch.source is not None else {}
  )
  for site, keys in sites.items():
    weights = np.zeros((1, 1, batch.inputs.shape[1], len(keys.index)))
    for t, s in np.ndindex(weights.shape[2:]):
      row = int(batch.rows.left[0, t, 0])
      segment = int(keys.segment[0, s])
      if segment == target:
        weights[0, 0, t, s] = at(row, "said", int(keys.left[0, s, 0]))
      elif segment < target:
        left, right = (int(x[0, s, 0]) for x in (keys.left, keys.right))
        digit = built.task.operand_place(segment, left, right)
        if digit is not None:
          weights[0, 0, t, s] = at(row, *digit)
    blocks[0][site] = {"weights": weights}
  model.observe = lambda _: (None, {"decoder": {"blocks": blocks}})
  return Seen(model, batch, 1, 3)


def shares(seen: Seen) -> tuple:
  """(own, carry) of all sites together."""
  return tuple(
    sum(mean.value for mean in probe(seen))
    for probe in (attention_probes.own_digits, attention_probes.carry_source)
  )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", TEXT)
def test_shares_are_on_the_digits_of_a_row_and_of_the_one_before(task, kind):
  held = lambda which: which == 0
  own = look(task, kind, lambda row, which, d: held(which) * (d == row))
  assert shares(own) == (1.0, 0.0)
  before = look(task, kind, lambda row, which, d: held(which) * (d == row - 1))
  assert shares(before) == (0.0, 1.0)
  said = look(
    task, kind, lambda row, which, d: (which == "said") * (d == row - 1)
  )
  assert shares(said) == (0.0, 1.0)
  off = look(task, kind, lambda row, which, d: held(which) * (d == row + 1))
  assert shares(off) == (0.0, 0.0)
  half = look(
    task,
    kind,
    lambda row, which, d: (
      held(which) * (0.5 * (d == row) + 0.25 * (d == row - 1))
    ),
  )
  assert shares(half) == pytest.approx((0.5, 0.25))


def test_a_digit_that_all_rows_share_is_everybodys_own():
  shared = look("multiply", KINDS[0], lambda row, which, d: float(which == 1))
  assert shares(shared) == (1.0, 0.0)
  other = look(
    "addition", KINDS[0], lambda row, which, d: which == 1 and d == 0
  )
  assert shares(other) == pytest.approx((1 / 3, 1 / 2))  # row 0, row 1 of two


def test_heads_that_see_nothing_are_left_out():
  blind = look("addition", KINDS[0], lambda row, which, d: 0.0)
  for probe in (
    attention_probes.own_digits,
    attention_probes.carry_source,
    attention_probes.entropy,
  ):
    assert not list(probe(blind))


def test_entropy_is_that_of_as_many_keys():
  even = look("successor", KINDS[0], lambda row, which, d: (which == 0) / 5)
  (cross,) = [
    mean for mean in attention_probes.entropy(even) if mean.part == "cross"
  ]
  assert cross.value == pytest.approx(math.log(5))
  one = look(
    "successor", KINDS[0], lambda row, which, d: which == 0 and d == row
  )
  assert [mean.value for mean in attention_probes.entropy(one)] == [0.0]


def test_the_strongest_line_is_the_best_of_those_long_enough():
  seen = look("addition", KINDS[0], lambda *at: 0.0)
  tested = Lines(
    row_segment=np.full(3, 2),
    segment=np.array([0, 1, 0]),
    anchor=np.ones(3, int),
    matrix=np.array([-1, 1, 1]).reshape(3, 1, 1),
    intercept=np.array([[0], [0], [-1]]),
  )
  verdict = types.SimpleNamespace(
    keep=np.array([[[True, True, False], [False] * 3, [False, False, True]]]),
    score=np.array([[[1.0, 3.5, 9.0], [7.0, 7.0, 7.0], [0.0, 0.0, -2.0]]]),
  )
  seen = dataclasses.replace(seen, lines=lambda: {"cross": (tested, verdict)})
  found = {mean.head: mean for mean in attention_probes.strongest_line(seen)}
  assert set(found) == {0, 2}
  assert found[0].value == 3.5 and found[0].line == "b: right-1·row = 0"
  assert found[2].value == -2.0 and found[2].line == "a: right-1·row = -1"
  assert found[0].part == "cross" and found[0].layer == 0
