"""Decoding along lines: a ring of rows says what the whole cache says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained

from lengthgen_jax.attention.lines import (
  LEFT,
  RIGHT,
  WHOLE,
  Line,
  of_seed,
  shared_lines,
)
from lengthgen_jax.evaluation import decode
from lengthgen_jax.evaluation.trained import LONG, Model

A, B, TARGET, START = 0, 1, 2, 3
FAR = [Line(A, RIGHT, 1, 0), Line(B, RIGHT, 1, -1, -0.5), Line(A, LEFT, 0, 0)]
NEAR = {
  "own row": [Line(TARGET, LEFT, 1, -1)],
  "start": [Line(START, LEFT, 0, 0), Line(TARGET, LEFT, 1, -2, -1.0)],
  "far back": [Line(TARGET, LEFT, 1, -4), Line(START, LEFT, 0, 0)],
  "fixed": [Line(TARGET, LEFT, 0, 2), Line(TARGET, LEFT, 1, -1, -0.3)],
  "mirrored": [Line(TARGET, LEFT, -1, 4), Line(TARGET, LEFT, 1, -3)],
  "whole": [Line(WHOLE, LEFT, 1, 0), Line(WHOLE, LEFT, 1, -2, -0.2)],
}
CYCLIC = {
  "positions.kind": "sinusoidal",
  "positions.cyclic_period": 3,
  "positions.source_anchor": "right",
}


def model(near, **fields):
  """An untrained model whose attention follows lines."""
  more = {
    "model.num_encoder_layers": 0,
    "model.num_decoder_layers": 2,
    "model.norm": "none",
    "positions.kind": "none",
  }
  built = untrained.experiment(fields=more | fields)
  heads = built.model.config.num_heads
  lines = {"self": shared_lines(near, heads), "cross": shared_lines(FAR, heads)}
  # Without constants: what is said shall hang on the keys.
  params = jax.tree_util.tree_map_with_path(
    lambda path, x: 0.0 * x if path[-1].key == "bias" else x,
    untrained.params(built, seed=1),
  )
  return Model(built, of_seed(lines, 0), params)


def said(own, texts, width, how):
  batch = untrained.typed(own.experiment, *texts, width=width)
  args = own.experiment, own.params, own.scaffold, batch, jnp.int32(width + 1)
  greedy = np.asarray(decode.greedy(*args, how))
  return greedy, np.asarray(decode.stream(*args, how, own.cache_window(batch)))


@pytest.mark.parametrize("name", NEAR)
def test_a_ring_of_rows_says_what_the_whole_cache_says(name):
  own = model(NEAR[name])
  rng = np.random.default_rng(0)
  numbers = rng.integers(0, 10**9, (4, 2))
  texts = [f"{a}+{b}" for a, b in numbers]
  greedy, stream = said(own, texts, 12, None)
  assert (greedy == stream).all()
  assert len(np.unique(greedy)) > 2  # not one token again and again
  end = int(greedy[0, 5])  # stops somewhere inside
  greedy, stream = said(own, texts, 12, end)
  assert (greedy == stream).all()
  assert (greedy == own.experiment.task.pad).any()


def test_phases_of_a_cyclic_index_are_those_of_the_width():
  own = model(NEAR["start"], **CYCLIC)
  for width in (7, 8):
    greedy, stream = said(own, ["4711+815", "99999+1"], width, None)
    assert (greedy == stream).all()


def test_rows_beyond_a_block_are_looked_up_anew():
  own = model(NEAR["far back"])
  width = decode.BLOCK + 40
  text = "".join(map(str, np.random.default_rng(1).integers(0, 10, width - 3)))
  greedy, stream = said(own, [f"{text}+{text[::-1]}"], width, None)
  assert (greedy == stream).all()


def test_a_ring_holds_what_lines_can_see_and_no_more():
  batch = untrained.typed(model(NEAR["own row"]).experiment, "1+2")
  ring = lambda name: model(NEAR[name]).cache_window(batch)
  assert ring("own row") == (1, 1)
  assert ring("start") == (1, 2)
  assert ring("far back") == (1, 4)
  assert ring("fixed") == (4, 1)  # output 2 is the fourth key
  assert ring("mirrored") == (6, 3)
  assert ring("whole") == (1, 3)


@pytest.mark.parametrize(
  "fields",
  [
    {"positions.kind": "sinusoidal"},
    {"temperature.kind": "log_items"},
    {"model.num_encoder_layers": 1},
    {"bias.allow_leak": True},  # rows not yet written would be seen
  ],
  ids=str,
)
def test_models_that_see_more_decode_with_the_whole_cache(fields):
  own = model(NEAR["own row"], **fields)
  assert own.cache_window(untrained.typed(own.experiment, "1+2")) is None


def test_very_long_outputs_are_decoded_and_judged_alike(monkeypatch):
  own = model(NEAR["start"])
  batch = untrained.typed(own.experiment, "4711+815", "12+7", width=8)
  right, exact = map(np.asarray, own.hits(batch))
  monkeypatch.setattr("lengthgen_jax.evaluation.trained.LONG", 4)
  told = own.greedy(batch, stop=None)
  found, again = own.hits(batch)
  assert (found == (told == batch.target)).all()
  assert (exact == again).all() and not exact.any()
  first = right.argmin(axis=1)  # until the first error both are the same
  for row, stop in enumerate(first):
    assert (found[row, : stop + 1] == right[row, : stop + 1]).all()
  assert LONG > 10**4
