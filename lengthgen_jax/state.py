"""The training state: arrays only, a leading seeds axis on all but `step`."""

import jax
import jax.numpy as jnp
from flax import struct

# How seeds share one program: batched together, or one after the other.
SEED_AXES = ("vmap", "loop")


class TrainState(struct.PyTreeNode):
  """What a checkpoint holds.

  Attributes:
    step: scalar int32, gradient steps done.
    params, opt_state: leaves [R, ...].
    done: [R] bool, seeds that reached their target or diverged; frozen.
    diverged: [R] bool, seeds whose loss became non-finite.
    stopped_at: [R] int32, step at which a seed was frozen, -1 before.
    best_em: [R] float32, best validation exact match, in range.
    best_params: leaves [R, ...], where `best_em` was measured.
  """

  step: jax.Array
  params: dict
  opt_state: object
  done: jax.Array
  diverged: jax.Array
  stopped_at: jax.Array
  best_em: jax.Array
  best_params: dict


def create(params, opt_state) -> TrainState:
  """State before the first step; `params` and `opt_state` have axis R."""
  seeds = jax.tree.leaves(params)[0].shape[0]
  return TrainState(
    step=jnp.int32(0),
    params=params,
    opt_state=opt_state,
    done=jnp.zeros((seeds,), bool),
    diverged=jnp.zeros((seeds,), bool),
    stopped_at=jnp.full((seeds,), -1, jnp.int32),
    best_em=jnp.full((seeds,), -1.0, jnp.float32),
    best_params=jax.tree.map(jnp.copy, params),
  )


def select(mask_R, on_true, on_false):
  """Per seed, one of two pytrees with axis R."""

  def choose(x, y):
    return jnp.where(mask_R.reshape((-1,) + (1,) * (x.ndim - 1)), x, y)

  return jax.tree.map(choose, on_true, on_false)


def keep(names, old, new):
  """`new`, but `old` wherever a leaf's path has one of these parameter names:
  in parameters and in the optimizer's moments alike."""
  if not names:
    return new

  def choose(path, x, y):
    keys = {getattr(part, "key", None) for part in path}
    return x if keys & set(names) else y

  return jax.tree_util.tree_map_with_path(choose, old, new)
