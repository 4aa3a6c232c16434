"""This module holds the training state of ONE seed: arrays only."""

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct


class TrainState(struct.PyTreeNode):
  """A TrainState is what a checkpoint holds of a seed; a run stacks its seeds.

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
  opt_state: optax.OptState
  done: jax.Array
  diverged: jax.Array
  stopped_at: jax.Array
  best_em: jax.Array
  best_step: jax.Array
  best_params: dict


def select(condition: jax.Array, on_true: Any, on_false: Any) -> Any:
  """Returns one of two pytrees."""
  return jax.tree.map(
    lambda x, y: jnp.where(condition, x, y), on_true, on_false
  )


def finite(tree: Any) -> jax.Array:
  """Tells whether every number of a pytree is finite."""
  return jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)]).all()


def keep(names: Collection[str], old: Any, new: Any) -> Any:
  """Returns `new`, but `old` wherever a leaf's path has one of these names.

  They are names of parameters, which occur in parameters and in the optimizer's
  moments alike.
  """

  def choose(path, old_leaf, new_leaf):
    is_kept = any(getattr(part, "key", None) in names for part in path)
    return old_leaf if is_kept else new_leaf

  return jax.tree_util.tree_map_with_path(choose, old, new)
