"""Position encodings in a model: where counting starts, what a table holds."""

import jax
import numpy as np
import pytest
import untrained
from plain_lines import places, tokens

from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.attention.positions.encoding import PositionConfig, sinusoid
from lengthgen_jax.errors import UsageError
from lengthgen_jax.tasks import TASKS
from lengthgen_jax.tasks.packing import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_and_its_digits_share_a_place(kind):
  """The input of a row that must say digit i has the place of the digits i."""
  built = untrained.experiment("addition", kind)
  batch = untrained.typed(built, "123+456")  # $0123+0456 -> 9750&
  place, digit = batch.places.place[0, :, 0], batch.places.digit[0]
  first = int(batch.first_scored[0])
  assert place[first : first + 5].tolist() == [0, 1, 2, 3, 4]
  at = batch.places if kind == "decoder_only" else batch.source_places
  assert at.place[0, :10, 0].tolist() == [4, 3, 2, 1, 0] * 2
  assert at.digit[0, :10].tolist() == [False, True, True, True, True] * 2
  assert np.all(digit[first : first + 4])


@pytest.mark.parametrize("period", (0, 3))
def test_a_right_anchored_source_keeps_its_phase_at_every_width(period):
  """So that the output row and its input digit have one index."""
  config = PositionConfig("sinusoidal", period, "right")
  for width in (6, 8, 13):
    keys = places(tokens((0, width + 1), (1, width + 1)))
    padded = places(tokens((0, width + 1), (1, width + 1)), [*tokens((0, 40))])
    index = np.asarray(config.cyclic(keys.index_right()))[0]
    again = np.asarray(config.cyclic(padded.index_right()))[0]
    assert np.array_equal(again[: 2 * width + 2], index)
    last = index[width + 1 :][::-1]
    assert np.array_equal(last, config.cyclic(np.arange(width + 1)))


@pytest.mark.parametrize("anchor", ("left", "right"))
def test_the_source_is_counted_from_its_anchor(anchor):
  fields = {"positions.source_anchor": anchor, "positions.kind": "sinusoidal"}
  built = untrained.experiment("addition", "encoder_decoder", fields)
  batch = untrained.typed(built, "12+34", longest=6)
  params = untrained.params(built)
  sites = built.sites({}, batch)
  run = lambda: built.model.apply(
    {"params": params}, batch, sites, method="encode"
  )
  acts = jax.jit(run)()[1]
  table = params["token_embedder"]["embedding"][np.asarray(batch.source[0])]
  found = (np.asarray(acts["embeddings"])[0] - table)[:10]
  index = np.arange(10)[:: 1 if anchor == "left" else -1]
  np.testing.assert_allclose(found, sinusoid(index, 16), atol=1e-5)


def refusal(task, fields, **how) -> str:
  with pytest.raises(UsageError) as error:
    untrained.experiment(task, fields=fields, **how)
  assert "\n" not in str(error.value)
  return str(error.value)


LIMITED = [kind for kind in POSITIONS if POSITIONS[kind].limited]


@pytest.mark.parametrize("kind", LIMITED)
def test_a_table_too_short_is_refused(kind):
  """For training, starts included, and for every test."""
  fields = {"positions.kind": kind, "eval.lengths": (3,)}
  fields["positions.random_start"] = 30
  index = POSITIONS[kind].limited == "index"
  # Width 4: 10 source tokens; places 0...4, and 29 starts. Test: width 5.
  train, test = (10, 12) if index else (34, 6)
  for family in KINDS if not index else ("encoder_decoder",):
    words = refusal(
      "addition", fields | {"positions.table": train - 1}, kind=family
    )
    assert words.endswith(
      f"training inputs need {train} positions, but positions.table={train - 1}"
    )
  enough = fields | {"positions.table": max(train, test)}
  built = untrained.experiment("addition", fields=enough)
  if index:
    words = refusal("addition", fields | {"positions.table": test - 1})
    assert f"3 digits need {test} positions" in words
  with pytest.raises(UsageError, match="positions.table"):
    built.test_width(40)


def test_a_cyclic_table_has_rows_for_every_index():
  fields = {"positions.kind": "learned", "positions.table": 3}
  fields["positions.cyclic_period"] = 3
  untrained.experiment("addition", fields=fields).test_width(1000)


@pytest.mark.parametrize("kind", POSITIONS)
def test_places_of_digits_are_for_tasks_of_digits(kind):
  fields = {"positions.kind": kind}
  if POSITIONS[kind].of_digits:
    words = refusal("sort", fields)
    assert f"positions.kind='{kind}'" in words and "choose one of none" in words
    assert not any(
      other in words.split("choose")[1]
      for other in POSITIONS
      if POSITIONS[other].of_digits
    )
  else:
    untrained.experiment("sort", fields=fields)
  digits = [name for name in TASKS if TASKS[name]().of_digits]
  for name in digits:
    untrained.experiment(name, fields=fields)
