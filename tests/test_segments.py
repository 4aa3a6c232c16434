"""The segment embedding: every input has the vector of its token's segment."""

import jax
import numpy as np
import pytest
import untrained
from command import refuses

from lengthgen_jax.tasks.packing import KINDS

SEGMENTS = {"positions.segments": True, "positions.kind": "none"}
# Segment of every input token of `12+34` at width 3. Start token and delimiter
# belong to the output's segment.
INPUT_SEGMENTS = {
  "decoder_only": [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2],
  "encoder_decoder": [2, 2, 2, 2],
}
SOURCE_SEGMENTS = [0, 0, 0, 0, 1, 1, 1, 1]  # `$012+034`


@pytest.mark.parametrize("kind", KINDS)
def test_every_input_gets_its_tokens_segment_vector(kind):
  experiment = untrained.experiment("addition", kind, SEGMENTS)
  params = untrained.params(experiment)
  batch = untrained.typed(experiment, "12+34", "5+6", width=3, longest=5)
  vectors = np.asarray(params["segment_embedder"]["embedding"])
  words = np.asarray(params["token_embedder"]["embedding"])
  assert vectors.shape == (3, 16)
  apply = jax.jit(lambda x: experiment.apply(x, {}, batch, "addition"))
  _, acts = apply(params)
  stacks = [(acts["inputs"], batch.inputs, INPUT_SEGMENTS[kind])]
  if kind == "encoder_decoder":
    stacks.append((acts["source"], batch.source, SOURCE_SEGMENTS))
  for embedded, tokens, segments in stacks:
    size = len(segments)
    added = np.asarray(embedded)[:, :size] - words[tokens[:, :size]]
    expected = np.broadcast_to(vectors[segments], added.shape)
    np.testing.assert_allclose(added, expected, atol=1e-6)


def test_in_list_tasks_the_operand_and_the_output_are_two_segments():
  """Padding is of the output's segment, so that decoder inputs do not reveal
  where the output ends."""
  experiment = untrained.experiment("sort", "decoder_only", SEGMENTS)
  assert experiment.model.config.num_segments == 2
  batch = untrained.typed(experiment, "3 1 2", "4", longest=4)
  segments = np.asarray(batch.places.segment)
  assert segments.tolist() == [[0, 0, 0, 1, 1, 1, 1, 1], [0] + [1] * 7]


def test_segments_that_change_nothing_are_refused():
  """They change nothing where every site of attention has one segment."""
  with refuses("positions.segments=True changes nothing", "decoder_only"):
    untrained.experiment("successor", "encoder_decoder", SEGMENTS)
