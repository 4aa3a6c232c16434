"""Optimizers: which parameters they move, how far, and what is saved."""

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
import toy
import untrained
from pytrees import leaf_bytes

from lengthgen_jax.config.build import build
from lengthgen_jax.sections import Train
from lengthgen_jax.training import loop, optimizer
from lengthgen_jax.training.loop import TrainSpec
from lengthgen_jax.training.optimizer import OPTIMIZERS

NAMES = tuple(OPTIMIZERS)
# The input axes and the output axes of the kernels that Muon updates.
KERNELS = {
  **dict.fromkeys(("query", "key", "value"), ((0,), (1, 2))),
  **dict.fromkeys(("wi", "wo"), ((0,), (1,))),
  "out": ((0, 1), (2,)),
}


def train_config(**changes) -> Train:
  """A constant rate of 1 from the first step, without clipping, and
  `changes`."""
  defaults = {"learning_rate": 1.0, "warmup_steps": 0, "steps": 10}
  return toy.train_config(**defaults | changes)


@pytest.fixture(scope="module")
def params() -> dict:
  return untrained.params(untrained.experiment("addition"))


@pytest.fixture(scope="module")
def grads(params) -> dict:
  rng = np.random.default_rng(1)
  return jax.tree.map(lambda x: jnp.array(rng.normal(size=x.shape)), params)


def updates(train: Train, params: dict, grads: dict) -> dict:
  """{path: update} of the first step."""
  transformation = optimizer.make_optimizer(train)
  update = jax.jit(transformation.update)
  tree, _ = update(grads, transformation.init(params), params)
  return {
    tuple(key.key for key in path): np.asarray(leaf)
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }


def is_muon_kernel(path: tuple) -> bool:
  return path[-1] == "kernel" and path[-2] in KERNELS


@pytest.fixture(scope="module")
def muon(params, grads) -> dict:
  train = train_config(optimizer="muon", adam_learning_rate=0.01)
  return updates(train, params, grads)


def test_muon_makes_the_updates_of_kernels_orthogonal(muon):
  kernel_updates = {x: y for x, y in muon.items() if is_muon_kernel(x)}
  assert {path[-2] for path in kernel_updates} == set(KERNELS)
  for path, update in kernel_updates.items():
    rows, columns = KERNELS[path[-2]]
    shape = np.array(update.shape)
    fan_in, fan_out = np.prod(shape[[*rows]]), np.prod(shape[[*columns]])
    matrix = update.reshape(fan_in, fan_out)
    singular_values = np.linalg.svd(matrix, compute_uv=False)
    singular_values /= np.sqrt(max(1.0, fan_out / fan_in))
    # Newton-Schulz brings most singular values near 1; the smallest need more
    # steps.
    assert singular_values.max() < 1.4, path
    assert np.median(singular_values) > 0.6, path


def test_muon_leaves_other_parameters_to_nadam(muon, params, grads):
  train = train_config()
  nadam = optax.nadam(0.01, b1=train.adam_b1, b2=train.adam_b2)
  expected, _ = jax.jit(nadam.update)(grads, nadam.init(params), params)
  others = [path for path in muon if not is_muon_kernel(path)]
  assert len(others) > 10
  for path in others:
    leaf = functools.reduce(lambda tree, name: tree[name], path, expected)
    np.testing.assert_allclose(muon[path], leaf, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_weights_decay_by_the_learning_rate(name, params):
  """Without gradients the update is the decay alone."""
  wi = params["decoder_0"]["mlp"]["wi"]
  zeros = jax.tree.map(jnp.zeros_like, {"wi": wi})
  train = train_config(optimizer=name, learning_rate=0.5, weight_decay=0.1)
  decay = updates(train, {"wi": wi}, zeros)["wi", "kernel"]
  np.testing.assert_allclose(decay, -0.05 * wi["kernel"], rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_heads_that_a_step_does_not_train_keep_parameters_and_moments(name):
  experiment = build(tiny.get_config("increment,carry"))
  spec = TrainSpec(experiment, train_config(optimizer=name, weight_decay=0.1))
  params = untrained.params(experiment)
  params = {x: y for x, y in params.items() if not x.startswith("decoder_")}
  opt_state = optimizer.make_optimizer(spec.train).init(params)
  step_spec = experiment.step_specs[1]
  idle = experiment.idle_params(step_spec)
  assert idle == {"logits_dense_increment"}
  ones = jax.tree.map(jnp.ones_like, params)
  update = jax.jit(partial(loop.update, spec, step_spec))
  before, after = (params, opt_state), update(params, opt_state, ones)

  def leaves_of(part: str, trees) -> list:
    """Parameters and moments of a part of the model."""
    leaves = jax.tree_util.tree_leaves_with_path(trees)
    paths = {jax.tree_util.keystr(path): x for path, x in leaves}
    return [x for path, x in paths.items() if f"['{part}']" in path]

  for part in params:
    old, new = leaves_of(part, before), leaves_of(part, after)
    pairs = zip(leaf_bytes(old), leaf_bytes(new), strict=True)
    is_same = [x == y for x, y in pairs]
    assert len(old) > 1
    assert all(is_same) if part in idle else not any(is_same), part
