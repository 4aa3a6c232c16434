"""This module trains many seeds in one program.

Functions that are pure of one seed are mapped over R seeds, on each device of a
mesh by itself.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.training import train_step
from lengthgen_jax.training.mesh import SINGLE_DEVICE, Mesh
from lengthgen_jax.training.train_step import (
  ChunkMetrics,
  TrainSpec,
  TrainState,
)

# Seeds are trained side by side, or one after the other.
SEED_AXES = ("vmap", "loop")


class Status(NamedTuple):
  """A Status is what the host reads of all seeds after a chunk.

  Attributes:
    state: the states [R] without parameters, which stay on the devices.
    metrics: of the chunk, [R, heads].
  """

  state: TrainState
  metrics: ChunkMetrics


def over_seeds(
  function: Callable, axis: str, mesh: Mesh = SINGLE_DEVICE
) -> Callable:
  """Maps a function of one seed's arguments over stacked ones [R, ...]."""
  if axis == "vmap":
    return mesh.shard_map_seeds(jax.vmap(function))
  return mesh.shard_map_seeds(
    lambda *stacked: jax.lax.map(
      lambda arguments: function(*arguments), stacked
    )
  )


@partial(jax.jit, static_argnums=0)
def init_states(spec: TrainSpec, seed_R: jax.Array) -> TrainState:
  """Returns the states before the first step.

  They are computed on one device, so that they are the same to the last bit
  whatever the mesh.
  """
  return over_seeds(partial(train_step.init_state, spec), "loop")(seed_R)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def train_chunk(
  spec: TrainSpec,
  states: TrainState,
  seed_R: jax.Array,
  scaffold: dict,
  rounds: jax.Array | int,
  replay: dict | None = None,
) -> tuple[TrainState, Status]:
  """Trains every seed that is not done for up to `rounds` rounds.

  Args:
    spec: static.
    states: [R, ...], whose buffers are donated to the result.
    seed_R: the seeds.
    scaffold: with a leading axis R or 1.
    rounds: traced.
    replay: with a leading axis R, see train_step.draw_batches.

  Returns:
    states, and their status.
  """
  spread = lambda x: jnp.broadcast_to(x, (len(seed_R), *jnp.shape(x)[1:]))
  train_seed = lambda state, seed, seed_scaffold, seed_replay: (
    train_step.train_chunk(
      spec, state, seed, seed_scaffold, rounds, seed_replay
    )
  )
  map_seeds = over_seeds(train_seed, spec.train.seed_axis, spec.mesh)
  states, metrics = map_seeds(
    states, seed_R, jax.tree.map(spread, scaffold), replay
  )
  metrics = spec.mesh.replicate(metrics)
  return states, Status(without_params(spec.mesh, states), metrics)


def without_params(mesh: Mesh, states: TrainState) -> TrainState:
  """Returns copies of the states' small arrays, on every host.

  They are copies because the buffers of the states are donated to the next
  chunk.
  """
  small = states.replace(params=None, opt_state=None, best_params=None)
  return mesh.replicate(jax.tree.map(jnp.copy, small))


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def restart(
  spec: TrainSpec, states: TrainState, seed_R: jax.Array, mask_R: np.ndarray
) -> TrainState:
  """Returns states [R, ...] of which the marked ones begin their next
  attempt."""

  def restart_if(
    state: TrainState, seed: jax.Array, is_marked: jax.Array
  ) -> TrainState:
    restart_seed = partial(train_step.restart_state, spec)
    stay = lambda state, seed: state
    return jax.lax.cond(is_marked, restart_seed, stay, state, seed)

  return over_seeds(restart_if, "loop", spec.mesh)(states, seed_R, mask_R)


def train_unfinished(
  spec: TrainSpec,
  states: TrainState,
  seed_R: jax.Array,
  scaffold: dict,
  done_R: np.ndarray,
  rounds: jax.Array | int,
  replay: dict | None = None,
) -> tuple[TrainState, Status]:
  """Trains a chunk of all seeds, at the cost of those that are not done.

  Side by side, seeds that are done cost as much as those that are not. When
  half of them are done, they leave the mapped axis (a compilation for each
  halving), unless they are split over devices.

  Args:
    spec, states, seed_R, scaffold, rounds, replay: as in `train_chunk`.
    done_R: which seeds are done, on the host.

  Returns:
    states, and the status of all seeds.
  """
  count = len(seed_R)
  size = 1 << int(max(count - done_R.sum() - 1, 0)).bit_length()
  looped = spec.train.seed_axis == "loop" or spec.mesh.shape[0] > 1
  if looped or size > count // 2:
    return train_chunk(spec, states, seed_R, scaffold, rounds, replay)
  picked = np.argsort(done_R, kind="stable")[:size]  # those that train first
  pick = lambda x: x[picked] if len(x) > 1 else x
  picked_states, picked_scaffold, picked_replay = jax.tree.map(
    pick, (states, scaffold, replay)
  )
  picked_states, picked_status = train_chunk(
    spec, picked_states, seed_R[picked], picked_scaffold, rounds, picked_replay
  )
  put = lambda old, new: old.at[picked].set(new)
  states = jax.tree.map(put, states, picked_states)
  nan = jnp.full((count, len(spec.experiment.heads)), jnp.nan)
  metrics = jax.tree.map(partial(put, nan), picked_status.metrics)
  return states, Status(without_params(spec.mesh, states), metrics)
