"""Hidden states of mean zero: the same function, with less rounding."""

import jax
import numpy as np
import pytest
import untrained

from lengthgen_jax.models import centering

PLAIN = {"positions.kind": "none", "model.norm": "pre"}
IDENTITY = PLAIN | {"model.num_encoder_layers": 0}
CYCLIC = {"positions.kind": "sinusoidal", "positions.cyclic_period": 3}
SEGMENTS = PLAIN | {"positions.segments": True}


def means(params):
  """The largest mean of an embedding, and of an output of a sublayer."""
  embedding = params["token_embedder"]["embedding"]
  block = params["decoder_0"]
  outputs = [block["mlp"]["wo"][key] for key in ("kernel", "bias")]
  outputs.append(block["self_attention"]["out"]["kernel"])
  largest = lambda x: float(np.abs(np.mean(x, axis=-1)).max())
  return largest(embedding), max(map(largest, outputs))


CASES = [
  ("encoder_decoder", IDENTITY, True),
  # What cross-attention reads has sinusoids, which the kernels would read.
  ("encoder_decoder", IDENTITY | CYCLIC, False),
  ("decoder_only", SEGMENTS, True),
  ("decoder_only", PLAIN | CYCLIC, True),
]


@pytest.mark.parametrize(("kind", "fields", "has_centered_embeddings"), CASES)
def test_logits_of_states_of_mean_zero(kind, fields, has_centered_embeddings):
  experiment = untrained.experiment("addition", kind, fields)
  params = untrained.params(experiment)
  assert centering.can_center(experiment.model.config)
  moved = centering.centered(experiment.model.config, params)
  embedding, output = means(moved)
  assert output < 1e-6 < means(params)[1]
  assert (embedding < 1e-6) == has_centered_embeddings
  batch = untrained.typed(experiment, "12+34", "907+8", "5+0")
  apply = jax.jit(lambda x: experiment.apply(x, {}, batch, "addition")[0])
  logits, moved_logits = (np.asarray(apply(x)) for x in (params, moved))
  assert np.abs(logits).max() > 1
  np.testing.assert_allclose(moved_logits, logits, atol=2e-4)


def test_models_that_read_the_mean_are_not_centered():
  for field in (
    {"model.norm": "post"},
    {"model.norm_kind": "rms"},
    {"positions.kind": "coordinates"},
    {"temperature.kind": "asentmax"},
  ):
    experiment = untrained.experiment("addition", "decoder_only", PLAIN | field)
    assert not centering.can_center(experiment.model.config)
