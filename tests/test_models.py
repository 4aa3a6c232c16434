"""What a model sees, and what it never does, in both families."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained
from flax import linen as nn
from plain_lines import one_seed, random_lines

from lengthgen_jax.attention.lines import WHOLE
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.tasks.packing import KINDS

LONGER = 9  # digits that a batch of width 4 is padded to


@functools.cache
def logits_function(kind: str, positions: str):
  """Jitted logits of a batch; a table of positions has just the rows that the
  longest test needs."""
  limited = POSITIONS[positions].limited
  rows = {"place": 6, "index": 12 if kind == "encoder_decoder" else 18}
  fields = {
    "positions.kind": positions,
    "positions.table": rows.get(limited, 512),
    "positions.random_start": 1,
  }
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
  logits_of = logits_function(kind, positions)
  short, long = four_examples(kind), four_examples(kind, LONGER)
  assert long.inputs.shape[1] > short.inputs.shape[1]
  count = short.inputs.shape[1]
  assert np.array_equal(long.inputs[:, :count], short.inputs)
  plain, padded = logits_of(short), logits_of(long)
  assert np.asarray(plain).std() > 0.1
  np.testing.assert_allclose(padded[:, :count], plain, atol=2e-5)


# By gradient.


@pytest.mark.parametrize("kind", KINDS)
def test_by_gradient_a_row_sees_what_its_bias_opens(kind):
  """One layer: an embedding moves a row's logits where some head is open."""
  fields = {"positions.kind": "none", "model.num_encoder_layers": 0}
  fields |= {"model.norm": "none", "model.dense_bias": False}
  experiment = untrained.experiment("addition", kind, fields)
  target = experiment.task.target_segment
  lines = random_lines(5, (1, 1, 2, 4), 1, (0, target, target + 1, WHOLE))
  scaffold = {"self": one_seed(lines)}
  params = untrained.params(experiment)
  batch = untrained.typed(experiment, "12+34")
  rows = batch.inputs.shape[1]

  def logits(added_TxD):
    def add(call, args, kwargs, context):
      outputs = call(*args, **kwargs)
      if context.method_name == "__call__" and args[0] is batch.inputs:
        return outputs + added_TxD  # the embedding of the inputs
      return outputs

    with nn.intercept_methods(add):
      logits, _ = experiment.apply(params, scaffold, batch, "addition")
    return logits[0] @ jnp.cos(jnp.arange(logits.shape[-1]))

  jacobian = jax.jit(jax.jacrev(logits))(jnp.zeros((rows, 16)))
  reached = np.abs(np.asarray(jacobian)).max(-1) > 1e-7
  bias = experiment.site_inputs(scaffold, batch).biases["self"].values[0, 0]
  is_open = np.asarray(bias > -np.inf).any(axis=0) | np.eye(rows, dtype=bool)
  assert not np.triu(is_open, 1).any()
  assert is_open.sum() < rows * (rows + 1) / 2
  assert np.array_equal(reached, is_open)


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
