"""This module trains many seeds in one program.

Functions that are pure of one seed are mapped over R seeds, on each device of a
mesh by itself.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.training.mesh import ONE, Mesh
from lengthgen_jax.training.state import TrainState
from lengthgen_jax.training.step import Trainer

# Seeds are trained side by side, or one after the other.
SEED_AXES = ("vmap", "loop")


def over_seeds(function: Callable, axis: str, mesh: Mesh = ONE) -> Callable:
  """Maps a function of one seed's arguments over stacked ones [R, ...]."""
  if axis == "vmap":
    return mesh.over_seeds(jax.vmap(function))
  return mesh.over_seeds(
    lambda *stacked: jax.lax.map(
      lambda arguments: function(*arguments), stacked
    )
  )


@partial(jax.jit, static_argnums=0)
def init(trainer: Trainer, seed_R: jax.Array) -> TrainState:
  """Returns the states before the first step.

  They are computed on one device, so that they are the same to the last bit
  whatever the mesh.
  """
  return over_seeds(trainer.init, "loop")(seed_R)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def chunk(
  trainer: Trainer,
  states: TrainState,
  seed_R: jax.Array,
  scaffold: dict,
  rounds: jax.Array | int,
  replay: dict | None = None,
) -> tuple[TrainState, dict]:
  """Trains every seed that is not done for up to `rounds` rounds.

  Args:
    trainer: static.
    states: [R, ...], whose buffers are donated to the result.
    seed_R: the seeds.
    scaffold: with a leading axis R or 1.
    rounds: traced.
    replay: with a leading axis R, see Trainer.chunk.

  Returns:
    states, and a status: small arrays [R] of the states, and "loss" and "em"
      [R, heads] of this chunk.
  """
  spread = lambda x: jnp.broadcast_to(x, (len(seed_R), *jnp.shape(x)[1:]))
  chunk_of_seed = lambda state, seed, seed_scaffold, seed_replay: trainer.chunk(
    state, seed, seed_scaffold, rounds, seed_replay
  )
  states, values = over_seeds(
    chunk_of_seed, trainer.train.seed_axis, trainer.mesh
  )(states, seed_R, jax.tree.map(spread, scaffold), replay)
  return states, trainer.mesh.whole(values) | status(trainer.mesh, states)


def status(mesh: Mesh, states: TrainState) -> dict[str, jax.Array]:
  """Returns copies of the states' small arrays, on every host.

  They are copies because the buffers of the states are donated to the next
  chunk.
  """
  names = ("step", "attempt", "begun", "done", "diverged", "stopped_at")
  names += ("best_em", "best_step")
  return mesh.whole({name: jnp.copy(getattr(states, name)) for name in names})


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def restart(
  trainer: Trainer, states: TrainState, seed_R: jax.Array, mask_R: np.ndarray
) -> TrainState:
  """Returns states [R, ...] of which the marked ones begin their next
  attempt."""
  stay = lambda state, seed: state
  restart_if = lambda state, seed, again: jax.lax.cond(
    again, trainer.restart, stay, state, seed
  )
  return over_seeds(restart_if, "loop", trainer.mesh)(states, seed_R, mask_R)


def chunk_of_unfinished(
  trainer: Trainer,
  states: TrainState,
  seed_R: jax.Array,
  scaffold: dict,
  done_R: np.ndarray,
  rounds: jax.Array | int,
  replay: dict | None = None,
) -> tuple[TrainState, dict]:
  """Trains a chunk of all seeds, at the cost of those that are not done.

  Side by side, seeds that are done cost as much as those that are not. When
  half of them are done, they leave the mapped axis (a compilation for each
  halving), unless they are split over devices.

  Args:
    trainer, states, seed_R, scaffold, rounds, replay: as in `chunk`.
    done_R: which seeds are done, on the host.

  Returns:
    states, and the status of all seeds, as in `chunk`.
  """
  count = len(seed_R)
  size = 1 << int(max(count - done_R.sum() - 1, 0)).bit_length()
  looped = trainer.train.seed_axis == "loop" or trainer.mesh.shape[0] > 1
  if looped or size > count // 2:
    return chunk(trainer, states, seed_R, scaffold, rounds, replay)
  picked = np.argsort(done_R, kind="stable")[:size]  # those that train first
  pick = lambda x: x[picked] if len(x) > 1 else x
  part_states, part_scaffold, part_replay = jax.tree.map(
    pick, (states, scaffold, replay)
  )
  part_states, part_status = chunk(
    trainer, part_states, seed_R[picked], part_scaffold, rounds, part_replay
  )
  put = lambda old, new: old.at[picked].set(new)
  states = jax.tree.map(put, states, part_states)
  blank = jnp.full((count, len(trainer.experiment.heads)), jnp.nan)
  logged = {name: put(blank, part_status[name]) for name in ("loss", "em")}
  return states, status(trainer.mesh, states) | logged
