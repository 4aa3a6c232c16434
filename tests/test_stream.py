"""Decoding along lines: a ring of rows says what the whole cache says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained

from lengthgen_jax.attention import lines as lines_module
from lengthgen_jax.attention.lines import LEFT, RIGHT, WHOLE, Line
from lengthgen_jax.evaluation import decode
from lengthgen_jax.evaluation.trained import Model, scored

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
  "model.num_decoder_layers": 2,
  "positions.kind": "sinusoidal",
  "positions.cyclic_period": 3,
  "positions.source_anchor": "right",
}


def model(near, task="addition", far=FAR, **fields):
  """An untrained model whose attention follows lines."""
  lined_fields = {
    "model.num_encoder_layers": 0,
    "model.num_decoder_layers": 1,
    "model.norm": "none",
    "positions.kind": "none",
  }
  experiment = untrained.experiment(task, fields=lined_fields | fields)
  heads = experiment.model.config.num_heads
  share = lambda lines: lines_module.shared_lines(lines, heads)
  lines = {"self": share(near), "cross": share(far)}
  # Outputs shall hang on the keys: not on constants, and little on phases.
  factors = {"bias": 0.0, "embedding": 4.0}
  params = jax.tree_util.tree_map_with_path(
    lambda path, x: factors.get(path[-1].key, 1.0) * x,
    untrained.params(experiment, seed=1),
  )
  return Model(experiment, lines_module.of_seed(lines, 0), params)


def decode_alike(model, texts, width):
  """Checks that `greedy` and `stream` say the same."""
  batch = untrained.typed(model.experiment, *texts, width=width)
  args = model.experiment, model.params, model.scaffold, batch
  args = *args, jnp.int32(min(width + 1, batch.inputs.shape[1])), None
  outputs = np.asarray(decode.greedy(*args))
  window = model.cache_window(batch)
  assert np.array_equal(outputs, decode.stream(*args, window))
  assert len(np.unique(outputs)) > 2  # not one token again and again


def test_lists_of_different_lengths_read_keys_of_their_own():
  near, far = [Line(1, LEFT, 1, -1)], [Line(0, RIGHT, 1, 0)]
  lined = model(near, "reverse", far, **{"data.train_length": 5})
  texts = "1 2 3", "4 2", "3 1 4 2 1", "1"
  decode_alike(lined, texts, 5)


@pytest.mark.parametrize("name", ("fixed", "whole"))
def test_a_short_cache_decodes_what_the_whole_cache_does(name):
  lined = model(NEAR[name])
  numbers = np.random.default_rng(0).integers(0, 10**9, (4, 2))
  texts = [f"{a}+{b}" for a, b in numbers]
  decode_alike(lined, texts, 12)


def test_rows_beyond_a_block_are_looked_up_anew(monkeypatch):
  """In two layers, whose phases are those of the width."""
  monkeypatch.setattr(decode, "BLOCK", 16)
  width = 50
  text = "".join(map(str, np.random.default_rng(1).integers(0, 10, width - 3)))
  lined = model(NEAR["far back"], **CYCLIC)
  decode_alike(lined, [f"{text}+{text[::-1]}"], width)


def test_a_cache_holds_what_lines_can_see_and_no_more():
  batch = untrained.typed(model(NEAR["own row"]).experiment, "1+2")
  windows = {name: model(NEAR[name]).cache_window(batch) for name in NEAR}
  assert windows == {
    "own row": (1, 1),
    "start": (1, 2),
    "far back": (1, 4),
    "fixed": (4, 1),  # output 2 is the fourth key
    "mirrored": (6, 3),
    "whole": (1, 3),
  }


FIELDS = {
  "positions.kind": "sinusoidal",
  "temperature.kind": "log_items",
  "model.num_encoder_layers": 1,
  "bias.allow_leak": True,  # rows not yet written would be seen
}


@pytest.mark.parametrize("field", FIELDS)
def test_models_that_see_more_decode_with_the_whole_cache(field):
  lined = model(NEAR["own row"], **{field: FIELDS[field]})
  assert lined.cache_window(untrained.typed(lined.experiment, "1+2")) is None


def test_very_long_outputs_are_decoded_and_judged_alike(monkeypatch):
  lined = model(NEAR["start"])
  batch = untrained.typed(lined.experiment, "4711+815", "12+7", width=8)
  target = np.array(batch.target)
  target[0] = lined.greedy(batch, stop=None)[0]
  batch = untrained.with_target(batch, scored(batch, target))
  assert lined.matches(batch).tolist() == [True, False]
  monkeypatch.setattr("lengthgen_jax.evaluation.trained.MAX_TEACHER_FORCED", 4)
  assert lined.matches(batch).tolist() == [True, False]
