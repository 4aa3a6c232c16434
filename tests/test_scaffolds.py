"""Windows, and how a scaffold becomes the bias of a site."""

import itertools

import jax
import numpy as np
import pytest
import untrained
from command import refuses
from plain_lines import INF, packed, places, tokens
from pytrees import one

from lengthgen_jax.attention import lines as lines_module
from lengthgen_jax.attention.biases import scaffold
from lengthgen_jax.attention.biases.scaffold import BiasConfig
from lengthgen_jax.attention.lines import LEFT, WHOLE, Line
from lengthgen_jax.tasks import TASKS

ALIGNED = {"arithmetic.aligned": True}
FORMS = [(name, {}) for name in TASKS if TASKS[name]().strides]
FORMS += [("addition", ALIGNED), ("multiply", ALIGNED)]

jitted = jax.jit(scaffold.dense_bias, static_argnums=(0, 2, 5))


def total(config, lines, site, rows, keys, decoding=False):
  """scaffold.dense_bias as an array [N or 1, B, H, T, S]."""
  bias = jitted(config, lines, site, rows, keys, decoding)
  assert not np.isnan(bias.values).any()
  return np.asarray(bias.values)


# Windows.


def sizes(task, width: int) -> list[tuple]:
  """(segment, tokens) of a prompt: a mark (two, interleaved), then digits."""
  count = {0: 2, 1: width + 1, 2: 2 * width + 2}
  return [(i, count[stride]) for i, stride in enumerate(task.strides)]


def windows(name, kind, fields, width, **bias):
  """(task, the window of a run as lines of one seed)."""
  fields = fields | {f"bias.{key}": value for key, value in bias.items()}
  fields = fields | {"bias.kind": "window", "bias.window": width}
  model = untrained.model(name, kind, fields)
  return model.experiment.task, model.scaffold


def band(size: int, width: int):
  """Cells [size, size] at most `width` to the left of the diagonal."""
  distance = np.arange(size)[:, None] - np.arange(size)
  return (distance >= 0) & (distance <= width)


def is_in_window(task, row: int, key, beside: int):
  """Whether output `row` sees a token (segment, left, right): those of its own
  digit (the single digit is every row's) and of some rows on either side."""
  segment, left, right = key
  place = (left if task.anchor == "left" else right)[0]
  stride = task.strides[segment]
  return abs(place // stride - row) <= beside if stride else place == 0


@pytest.mark.parametrize(("name", "fields"), FORMS)
@pytest.mark.parametrize(("width", "beside"), [(1, 0), (2, 1)])
def test_windows_are_those_of_plain_loops(name, fields, width, beside):
  size, own = 5, {"input_window": beside}
  task, lines = windows(name, "encoder_decoder", fields, width, **own)
  prompt = tokens(*sizes(task, size))
  segment = task.target_segment
  start, target = (segment + 1, 1), (segment, size + 1)
  rows, keys = places(tokens(target)), places(prompt)
  inputs = places(tokens(start, (segment, size)))
  bias = total(BiasConfig(), lines, "self", rows, inputs)
  assert np.array_equal(bias[0, 0, 0] == 0, band(size + 1, width))
  cells = itertools.product(range(size + 1), prompt)
  on_prompt = [is_in_window(task, *cell, beside) for cell in cells]
  on_prompt = np.reshape(on_prompt, (size + 1, len(prompt)))
  cross = total(BiasConfig(), lines, "cross", rows, keys)
  assert np.array_equal(cross[0, 0, 0] == 0, on_prompt)
  assert np.array_equal(cross[0, 0, 0], cross[0, 0, 1])
  # The same in one sequence, whose row of the delimiter says output 0.
  task, lines = windows(name, "decoder_only", fields, width, **own)
  rows, keys = packed(tokens(*sizes(task, size), start, target))
  assert set(lines) == {"self"}
  bias = total(BiasConfig(), lines, "self", rows, keys)[0, 0, 0] == 0
  expected = band(len(keys.index), width)
  expected[len(prompt) :, : len(prompt)] |= on_prompt
  assert np.array_equal(bias, expected)


def test_a_task_without_places_has_no_window():
  for name, task in TASKS.items():
    if not task().strides and task.axes == 1:
      with refuses("no fixed place"):
        windows(name, "decoder_only", {}, 1)


# From a scaffold to a bias.

OUTPUTS = places(tokens((1, 6)))  # six decoder inputs of one segment
TRIANGLE = np.tri(6, dtype=bool)
LEAKY = [
  Line(WHOLE, LEFT, 1, 1, 5.0),
  Line(WHOLE, LEFT, 0, 4, 0.5),
  Line(WHOLE, LEFT, 1, 0, -2.0),
]


def of_lines(*lines, transparent=False) -> dict:
  lines = one(lines_module.shared_lines(lines, 2))
  return {
    "self": lines._replace(transparent=np.full((1, 2), transparent)),
    "cross": lines,
  }


def self_bias(lines: dict, decoding=False, **fields):
  bias = total(BiasConfig(**fields), lines, "self", OUTPUTS, OUTPUTS, decoding)
  assert np.array_equal(bias[0, 0, 0], bias[0, 0, -1])
  return bias[0, 0, 0]


def test_no_line_and_no_transparent_head_opens_the_future():
  expected = np.eye(6, dtype=bool)
  expected[4:, 4] = True
  assert np.array_equal(self_bias(of_lines(*LEAKY)) > -INF, expected)
  clear = self_bias(of_lines(*LEAKY, transparent=True))
  assert np.array_equal(clear == 0, TRIANGLE)
  assert np.all(clear[~TRIANGLE] == -INF)


def test_a_leak_shows_only_where_it_is_allowed():
  leaky = of_lines(*LEAKY)
  expected = np.eye(6, dtype=bool) | np.eye(6, k=1, dtype=bool)
  expected[:, 4] = True
  bias = self_bias(leaky, allow_leak=True)
  assert np.array_equal(bias > -INF, expected)
  # While decoding, what would leak does not exist yet.
  bias = self_bias(leaky, allow_leak=True, decoding=True)
  assert np.array_equal(bias > -INF, expected & TRIANGLE)


def test_soft_cells_stay_behind_causality():
  plain = self_bias(of_lines(*LEAKY))
  is_open = plain > -INF
  soft = self_bias(of_lines(*LEAKY), closed=-3.0)
  assert np.all(soft[~TRIANGLE] == -INF)
  assert np.array_equal(soft[is_open], plain[is_open])
  assert np.all(soft[TRIANGLE & ~is_open] == -3.0)
  # Padding is never soft.
  padded = places(tokens((0, 6)), tokens((0, 4)))
  config = BiasConfig(closed=-3.0)
  bias = total(config, of_lines(*LEAKY), "cross", OUTPUTS, padded)[0, :, 0]
  assert np.all(bias[0] >= -3.0) and np.all(bias[1, :, 4:] == -INF)
