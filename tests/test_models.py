"""Models of both families: padding, and the types of activations.

That a row sees what its bias opens, and nothing else, is tested by
certificate_hunt.py.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained

from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.tasks.packing import KINDS

LONGER = 9  # digits that a batch of width 4 is padded to


@functools.cache
def logits_function(kind: str, positions: str):
  """Jitted logits of a batch; a table of positions has just the rows that the
  longest test needs."""
  rows = {"place": 6, "index": 12 if kind == "encoder_decoder" else 18}
  table = rows.get(POSITIONS[positions].limited, 512)
  fields = {"positions.kind": positions, "positions.table": table}
  fields["positions.random_start"] = 1
  fields["model.norm"] = "none"  # less to compile
  experiment = untrained.experiment("addition", kind, fields)
  params = untrained.params(experiment)
  return jax.jit(lambda x: experiment.apply(params, {}, x, "addition")[0])


@functools.cache
def four_examples(kind: str, longest=None):
  """The same addition four times."""
  experiment = untrained.experiment("addition", kind)
  return untrained.typed(experiment, *["12+34"] * 4, longest=longest)


# Encodings of each sort: added to inputs, turned, added to scores; that hang on
# index, place or row. That no row sees a later input test_evaluation.py tests.
ENCODED = [
  *(("decoder_only", x) for x in ("rope", "fire", "learned", "abacus")),
  *(("encoder_decoder", x) for x in ("sinusoidal", "t5")),
]


@pytest.mark.parametrize(("kind", "positions"), ENCODED)
def test_padding_changes_no_logit(kind, positions):
  """Behind prompt and output, and beyond what a table of positions holds."""
  short, long = four_examples(kind), four_examples(kind, LONGER)
  count = short.inputs.shape[1]
  assert long.inputs.shape[1] > count
  assert np.array_equal(long.inputs[:, :count], short.inputs)
  plain, padded = map(logits_function(kind, positions), (short, long))
  assert np.asarray(plain).std() > 0.1
  np.testing.assert_allclose(padded[:, :count], plain, atol=2e-5)


@pytest.mark.parametrize("dtype", ("bfloat16", "float64"))
def test_activations_have_the_models_dtype(dtype):
  """Scores, weights and logits have float32 at least."""
  for kind in KINDS:
    fields = {"model.dtype": dtype, "temperature.kind": "scalable"}
    experiment = untrained.experiment("addition", kind, fields)
    batch = untrained.typed(experiment, "12+34")
    apply = lambda batch, experiment=experiment: experiment.apply(
      experiment.init(0), {}, batch, "addition"
    )
    with jax.enable_x64(dtype == "float64"):
      logits, acts = jax.eval_shape(apply, batch)
    wide = jnp.promote_types(jnp.float32, dtype)
    assert logits.dtype == wide
    for path, x in jax.tree_util.tree_leaves_with_path(acts):
      is_softmax = path[-1].key in ("scores", "weights")
      assert x.dtype == (wide if is_softmax else dtype), path
