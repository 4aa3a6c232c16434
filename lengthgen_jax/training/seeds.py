"""Many seeds in one program: what is pure of one seed, for R of them, each
device of a mesh on its own."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.training.mesh import ONE, Mesh
from lengthgen_jax.training.step import Trainer

# Seeds side by side, or one after the other.
SEED_AXES = ("vmap", "loop")


def over_seeds(function, axis: str, mesh: Mesh = ONE):
  """A function of one seed's arguments for stacked ones [R, ...]."""
  if axis == "vmap":
    return mesh.over_seeds(jax.vmap(function))
  return mesh.over_seeds(
    lambda *stacked: jax.lax.map(lambda one: function(*one), stacked)
  )


@partial(jax.jit, static_argnums=0)
def init(trainer: Trainer, seed_R):
  """The states before the first step; on one device, so that they are the same
  to the last bit whatever the mesh."""
  return over_seeds(trainer.init, "loop")(seed_R)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def chunk(trainer: Trainer, states, seed_R, scaffold, rounds, replay=None):
  """Up to `rounds` rounds of every seed that is not done.

  Args:
    trainer: static.
    states: [R, ...], given up to the result.
    seed_R: the seeds.
    scaffold: with a leading axis R or 1.
    rounds: traced.
    replay: with a leading axis R, see Trainer.chunk.

  Returns:
    states, and a status: small arrays [R] of the states, and "loss" and "em"
    [R, heads] of this chunk.
  """
  spread = lambda x: jnp.broadcast_to(x, (len(seed_R), *jnp.shape(x)[1:]))
  one = lambda state, seed, own, more: trainer.chunk(
    state, seed, own, rounds, more
  )
  states, values = over_seeds(one, trainer.train.seed_axis, trainer.mesh)(
    states, seed_R, jax.tree.map(spread, scaffold), replay
  )
  return states, trainer.mesh.whole(values) | status(trainer.mesh, states)


def status(mesh: Mesh, states) -> dict:
  """Copies of the states' small arrays, on every host: the next chunk is given
  their own."""
  names = ("step", "attempt", "begun", "done", "diverged", "stopped_at")
  names += ("best_em", "best_step")
  return mesh.whole({name: jnp.copy(getattr(states, name)) for name in names})


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def restart(trainer: Trainer, states, seed_R, mask_R):
  """States [R, ...] of which the marked ones begin their next attempt."""
  stay = lambda state, seed: state
  one = lambda state, seed, again: jax.lax.cond(
    again, trainer.restart, stay, state, seed
  )
  return over_seeds(one, "loop", trainer.mesh)(states, seed_R, mask_R)


def chunk_of_rest(
  trainer: Trainer, states, seed_R, scaffold, done_R, rounds, replay=None
):
  """A chunk of all seeds, at the cost of those that are not done.

  Side by side, seeds that are done cost as much as those that are not: when
  half of them are, they leave the mapped axis (a compilation for each halving),
  unless they are split over devices.

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
  part, own, more = jax.tree.map(pick, (states, scaffold, replay))
  part, found = chunk(trainer, part, seed_R[picked], own, rounds, more)
  put = lambda old, new: old.at[picked].set(new)
  states = jax.tree.map(put, states, part)
  blank = jnp.full((count, len(trainer.experiment.heads)), jnp.nan)
  logged = {name: put(blank, found[name]) for name in ("loss", "em")}
  return states, status(trainer.mesh, states) | logged
