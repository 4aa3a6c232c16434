"""The training state of ONE seed: arrays only."""

import jax
import jax.numpy as jnp
from flax import struct


class TrainState(struct.PyTreeNode):
  """What a checkpoint holds of a seed; a run stacks its seeds in front.

  Attributes:
    step: int32, gradient steps done, of all attempts.
    attempt: int32, how often it started again.
    begun: int32, step at which this attempt began.
    params, opt_state: of this attempt.
    done: bool, whether it trains no more: at its target, not finite, or at the
      end of its steps.
    diverged: bool, whether its loss or parameters became non-finite; they are
      the last finite ones then.
    stopped_at: int32, step at which it was frozen before its steps were used
      up, -1 if it was not.
    best_em: float32, best validation exact match, in range.
    best_step: int32, step at which that was.
    best_params: the parameters of that step.
  """

  step: jax.Array
  attempt: jax.Array
  begun: jax.Array
  params: dict
  opt_state: object
  done: jax.Array
  diverged: jax.Array
  stopped_at: jax.Array
  best_em: jax.Array
  best_step: jax.Array
  best_params: dict


def select(condition, on_true, on_false):
  """One of two pytrees."""
  return jax.tree.map(
    lambda x, y: jnp.where(condition, x, y), on_true, on_false
  )


def finite(tree):
  """Whether every number of a pytree is finite."""
  return jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)]).all()


def keep(names, old, new):
  """`new`, but `old` wherever a leaf's path has one of these parameter names:
  in parameters and in the optimizer's moments alike."""

  def choose(path, x, y):
    kept = any(getattr(part, "key", None) in names for part in path)
    return x if kept else y

  return jax.tree_util.tree_map_with_path(choose, old, new)
