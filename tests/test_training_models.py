"""Training steps of real models: widths, heads, kinds, seeds side by side."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained
from pytrees import bits, is_finite, one
from tiny import get_config

from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.config.build import build, make_scaffold
from lengthgen_jax.training import optimizer, train_step
from lengthgen_jax.training.optimizer import TrainConfig
from lengthgen_jax.training.train_step import TrainSpec


def make(config):
  """(spec, scaffold of all seeds)."""
  experiment = build(config)
  scaffold = make_scaffold(config, experiment)
  return TrainSpec(experiment, TrainConfig(**config.train)), scaffold


@partial(jax.jit, static_argnums=(0, 1))
def take_step(spec, step_spec, params, opt_state, step):
  batches = train_step.draw_batches(spec, step_spec, 0, step)
  return train_step.train_step(spec, step_spec, params, opt_state, batches, {})


def untrained_start(spec):
  """(parameters, moments) before the first step."""
  params = untrained.params(spec.experiment)
  blank = jax.eval_shape(optimizer.make(spec.train).init, params)
  return params, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), blank)


def test_seed_is_the_same_whatever_stands_beside_it(tiny_config):
  """With dropout: to the last bit in a loop, to rounding side by side."""
  spec, scaffold = make(tiny_config)
  found = {}
  for seeds in ((0, 1), (1, 7)):
    start = train_step.init_seeds(spec, jnp.array(seeds))
    assert bits(one(start.params, 0)) != bits(one(start.params, 1))
    state, status = train_step.train_seeds(
      spec, start, jnp.array(seeds), scaffold, 8
    )
    found[seeds] = one((state, status.metrics), seeds.index(1))
  assert bits(found[0, 1]) == bits(found[1, 7])

  tiny_config.train.seed_axis = "vmap"
  other, _ = make(tiny_config)
  seed = jnp.array([1])
  _, status = train_step.train_seeds(
    other, train_step.init_seeds(other, seed), seed, scaffold, 8
  )
  np.testing.assert_allclose(
    status.metrics.loss[0], found[0, 1][1].loss, rtol=1e-4
  )


def test_every_width_is_trained_in_its_turn():
  """One program pads to the widest; what is padded has no gradient."""
  config = get_config("successor")
  config.data.widths = (3, 5)
  config.positions.kind = "learned"
  config.model.update(norm="post", activation="gelu", num_encoder_layers=0)
  config.model.dropout_rate = 0.0
  config.train.warmup_steps = 0
  spec, _ = make(config)
  (step_spec,) = spec.experiment.step_specs
  assert spec.experiment.num_widths == 2
  params, opt_state = untrained_start(spec)
  rows = lambda params: np.concatenate(
    [
      params[f"positions_{s}"]["embedding"]["embedding"]
      for s in ("self", "cross")
    ],
    axis=1,
  )
  before = rows(params)
  size = take_step._cache_size()
  for step, width in ((0, 3), (1, 5)):
    params, opt_state, loss = take_step(
      spec, step_spec, params, opt_state, step
    )
    assert np.isfinite(loss).all()
    moved = (rows(params) != before).any(axis=1)
    assert moved[: width + 1].all() and not moved[width + 1 :].any()
  assert take_step._cache_size() == size + 1


def changed(before, after) -> set[str]:
  """Top-level names of parameters that differ."""
  return {name for name in before if bits(before[name]) != bits(after[name])}


def moments(opt_state, name: str) -> list:
  """Adam's, of the parameters under a top-level name."""
  return [
    np.asarray(leaf)
    for path, leaf in jax.tree_util.tree_leaves_with_path(opt_state)
    if name in {getattr(part, "key", None) for part in path}
  ]


def test_steps_alternate_and_idle_heads_rest():
  """The trunk learns from all; weights decay in busy heads alone."""
  config = get_config("increment,carry")
  config.data.buckets = (6,)  # half as much to compile
  config.train.weight_decay = 0.1
  spec, _ = make(config)
  experiment = spec.experiment
  heads = [share.head for (share,) in experiment.step_specs]
  assert heads == ["increment", "increment_carry"]
  params, opt_state = untrained_start(spec)
  for step, step_spec in enumerate(experiment.step_specs):
    new, new_opt, losses = take_step(spec, step_spec, params, opt_state, step)
    busy = f"logits_dense_{heads[step]}"
    assert changed(params, new) == {
      *("token_embedder", "decoder_0", "decoder_norm", busy)
    }
    assert losses.shape == (1,)
    for head in heads:
      name = f"logits_dense_{head}"
      same = bits(moments(opt_state, name)) == bits(moments(new_opt, name))
      assert same == (name != busy)
    # Weights decay without a gradient; moments do not come without one.
    for name in ("token_embedder", "decoder_0"):
      pairs = zip(moments(opt_state, name), moments(new_opt, name), strict=True)
      assert all((old != now).any() for old, now in pairs)
    params, opt_state = new, new_opt


KINDS = {
  "permutation, windowed encoder, rope, block_end, gelu": (
    "multiply,window",
    {"num_encoder_layers": 1, "norm": "block_end", "activation": "gelu"},
    {"numbers": "permutation", "widths": (8,)},
  ),
  "alibi, no norm, bfloat16, label": (
    "parity_classification,alibi",
    {"norm": "none", "dtype": "bfloat16"},
    {},
  ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_of_every_kind_of_model_learns(kind):
  preset, model, data = KINDS[kind]
  config = get_config(preset)
  config.model.update(model)
  config.data.update(data)
  if "rope" in kind:
    config.bias.windowed_encoder = True
    config.positions.kind = "rope"
  spec, scaffold = make(config)
  ((share,),) = spec.experiment.step_specs
  params = untrained.params(spec.experiment)

  @jax.jit
  @jax.value_and_grad
  def gradients(params):
    experiment, own = spec.experiment, of_seed(scaffold, 0)
    data, drop = jax.random.split(jax.random.key(0))
    batch = experiment.sample(data, share.head, share.parts[0])
    return train_step.batch_loss(params, spec, batch, share.head, drop, own)

  loss, found = gradients(params)
  assert np.isfinite(loss) and is_finite(found)
  assert {x.dtype for x in jax.tree.leaves(found)} == {jnp.dtype("float32")}
  for path, leaf in jax.tree_util.tree_leaves_with_path(found):
    # The softmax does not see what all keys have in common.
    common = "key" in jax.tree_util.keystr(path) and path[-1].key == "bias"
    assert common or np.abs(leaf).max() > 0, path
