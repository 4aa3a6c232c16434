"""What a model sees, and what it never does, in both families."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained
from flax import linen as nn
from plain_lines import random_lines

from lengthgen_jax.attention.biases import BIASES, file
from lengthgen_jax.attention.lines import WHOLE, of_seed
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.config.build import make_scaffold
from lengthgen_jax.models.layers import DTYPES, NORMS
from lengthgen_jax.tasks.packing import KINDS

LONGER = 9  # digits that a batch of width 4 is padded to


@functools.cache
def made(kind: str, positions: str):
  """(experiment, jitted logits of a batch); a table of positions has just the
  rows that the longest test needs."""
  limited = POSITIONS[positions].limited
  rows = {"place": 6, "index": 12 if kind == "encoder_decoder" else 18}
  fields = {
    "positions.kind": positions,
    "positions.table": rows.get(limited, 512),
    "positions.random_start": 1,
  }
  fields["model.norm"] = "none"  # less to compile
  built = untrained.experiment("addition", kind, fields)
  params = untrained.params(built)
  run = jax.jit(lambda batch: built.apply(params, {}, batch, "addition")[0])
  return built, run


@functools.cache
def example(kind: str, longest=None):
  """The same addition four times."""
  built = untrained.experiment("addition", kind)
  return untrained.typed(built, *["12+34"] * 4, longest=longest)


def later(inputs, rows):
  """Other tokens from rows[b] on in example b."""
  other = (inputs + 1) % 10
  return jnp.where(jnp.arange(inputs.shape[1]) < rows[:, None], inputs, other)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_row_sees_a_later_input(kind, positions):
  """Example 0 is the original, the others change from some row on."""
  _, run = made(kind, positions)
  batch = example(kind)
  count = batch.inputs.shape[1]
  rows = np.array([count, 1, 2, count - 1])
  batch = batch._replace(inputs=later(batch.inputs, rows))
  logits = np.asarray(run(batch))
  for b in (1, 2, 3):
    before, after = logits[b, : rows[b]], logits[b, rows[b] :]
    np.testing.assert_allclose(before, logits[0, : rows[b]], atol=1e-6)
    apart = np.abs(after - logits[0, rows[b] :]).max(-1)
    assert np.all(apart > 1e-4)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_no_logit(kind, positions):
  """Behind prompt and output, and beyond what a table of positions holds."""
  _, run = made(kind, positions)
  short, long = example(kind), example(kind, LONGER)
  assert long.inputs.shape[1] > short.inputs.shape[1]
  count = short.inputs.shape[1]
  assert np.array_equal(long.inputs[:, :count], short.inputs)
  plain, padded = run(short), run(long)
  assert np.asarray(plain).std() > 0.1
  np.testing.assert_allclose(padded[:, :count], plain, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_other_sources_are_other_answers(kind):
  """The control of the two tests above: what exists does matter."""
  built, run = made(kind, "none")
  batch = untrained.typed(built, "12+34", "13+34", "12+34", "12+35")
  logits = np.asarray(run(batch))[:, np.asarray(batch.first_scored)[0]]
  assert np.array_equal(logits[0], logits[2])
  assert np.abs(logits[0] - logits[1]).max() > 1e-3
  assert np.abs(logits[0] - logits[3]).max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_without_positions_sees_no_index(kind):
  _, run = made(kind, "none")
  batch = example(kind)
  moved = lambda at: (
    at and at._replace(index=at.index + 7, place=at.place[:, ::-1])
  )
  other = batch._replace(
    places=moved(batch.places), source_places=moved(batch.source_places)
  )
  assert np.array_equal(run(batch), run(other))
  _, told = made(kind, "sinusoidal")
  assert np.abs(told(batch) - told(other)).max() > 1e-3


# By gradient.


def scaffold_of(name, kind, path):
  """(experiment, scaffold of one seed): random lines if it is a file."""
  fields = {"positions.kind": "none", "bias.kind": name}
  fields |= {"bias.file": str(path), "model.num_encoder_layers": 0}
  fields |= {"model.norm": "none", "model.dense_bias": False}
  config = untrained.config("addition", kind, fields)
  built = untrained.experiment("addition", kind, fields)
  if name == "file":
    target = built.task.target_segment
    own = random_lines(5, (1, 1, 2, 4), 1, (0, target, target + 1, WHOLE))
    sites = built.site_segments
    file.save(path, {"self": own}, {"seeds": [0], "sites": sites})
  return built, of_seed(make_scaffold(config, built), 0)


@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize("kind", KINDS)
def test_by_gradient_a_row_sees_what_its_bias_opens(kind, name, tmp_path):
  """One layer: an embedding moves a row's logits where some head is open."""
  built, scaffold = scaffold_of(name, kind, tmp_path / "bias.npz")
  params = untrained.params(built)
  batch = untrained.typed(built, "12+34")
  rows = batch.inputs.shape[1]

  def logits(added_TxD):
    def add(call, args, kwargs, context):
      found = call(*args, **kwargs)
      if context.method_name == "__call__" and args[0] is batch.inputs:
        return found + added_TxD  # the embedding of the inputs
      return found

    with nn.intercept_methods(add):
      found, _ = built.apply(params, scaffold, batch, "addition")
    return found[0] @ jnp.cos(jnp.arange(found.shape[-1]))

  jacobian = jax.jit(jax.jacrev(logits))(jnp.zeros((rows, 16)))
  reached = np.abs(np.asarray(jacobian)).max(-1) > 1e-7
  opened = built.sites(scaffold, batch).biases["self"].values[0, 0]
  wanted = np.asarray(opened > -np.inf).any(axis=0) | np.eye(rows, dtype=bool)
  assert not np.triu(wanted, 1).any()
  assert wanted.sum() < rows * (rows + 1) / 2 or name == "none"
  assert np.array_equal(reached, wanted)


# Activations.


def keys_of(tree):
  """Names in a tree of activations, whatever their values are."""
  return jax.tree.structure(jax.tree.map(lambda x: 0, tree))


@pytest.mark.parametrize("dtype", DTYPES)
def test_activations_have_one_schema_and_the_models_dtype(dtype):
  """Cross-attention and an encoder are what the families differ in."""
  found = {}
  for kind in KINDS:
    fields = {"model.dtype": dtype, "temperature.kind": "scalable"}
    built = untrained.experiment("addition", kind, fields)
    batch = untrained.typed(built, "12+34")
    told = lambda own, batch: own.apply(own.init(0), {}, batch, "addition")
    with jax.enable_x64(dtype == "float64"):
      logits, acts = jax.eval_shape(functools.partial(told, built), batch)
    wide = jnp.promote_types(jnp.float32, dtype)
    assert logits.dtype == wide
    for path, x in jax.tree_util.tree_leaves_with_path(acts):
      inside = path[-1].key in ("scores", "weights")
      assert x.dtype == (wide if inside else dtype), path
    found[kind] = acts
  pair, alone = (found[kind] for kind in KINDS)
  assert alone["encoder"] == {}
  for block in pair["decoder"]["blocks"]:
    crossed = block.pop("cross")
    assert keys_of(crossed) == keys_of(block["self"])
  assert keys_of(pair["decoder"]) == keys_of(alone["decoder"])
  (layer,) = pair["encoder"]["blocks"]
  assert keys_of(layer) == keys_of(alone["decoder"]["blocks"][0])


@pytest.mark.parametrize("norm", NORMS)
def test_norms_stand_where_they_say(norm):
  built = untrained.experiment("addition", fields={"model.norm": norm})
  params = jax.eval_shape(lambda: built.init(0))
  names = {
    name for block in ("decoder_0", "encoder_0") for name in params[block]
  }
  norms = {name for name in names if "norm" in name}
  places = {"self_attention", "cross_attention", "mlp"}
  assert (
    norms
    == {
      "pre": {f"pre_{place}_layer_norm" for place in places},
      "post": {f"post_{place}_layer_norm" for place in places},
      "block_end": {"block_end_layer_norm"},
      "none": set(),
    }[norm]
  )
  assert ("decoder_norm" in params) == (norm == "pre")
