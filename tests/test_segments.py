"""The segment embedding: every input has the vector of its token's segment."""

import jax
import numpy as np
import pytest
import untrained
from command import refuses

from lengthgen_jax.tasks.packing import KINDS

SEGMENTS = {"positions.segments": True, "positions.kind": "none"}


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
  stacks = [(acts["inputs"], batch.inputs, batch.places)]
  if kind == "encoder_decoder":
    stacks.append((acts["source"], batch.source, batch.source_places))
  for embedded, tokens, places in stacks:
    expected = words[tokens] + vectors[places.segment]
    np.testing.assert_allclose(embedded, expected, atol=1e-6)


def test_segments_that_change_nothing_are_refused():
  """They change nothing where every site of attention has one segment."""
  with refuses("positions.segments=True changes nothing", "decoder_only"):
    untrained.experiment("successor", "encoder_decoder", SEGMENTS)
