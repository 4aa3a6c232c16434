"""Many seeds in one program: what is pure of one seed, for R of them."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.training.step import Trainer

# Seeds side by side, or one after the other.
SEED_AXES = ("vmap", "loop")


def over_seeds(function, axis: str):
  """A function of one seed's arguments for stacked ones [R, ...]."""
  if axis == "vmap":
    return jax.vmap(function)
  return lambda *stacked: jax.lax.map(lambda one: function(*one), stacked)


@partial(jax.jit, static_argnums=0)
def init(trainer: Trainer, seed_R):
  """The states before the first step."""
  return jax.lax.map(trainer.init, seed_R)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def chunk(trainer: Trainer, states, seed_R, scaffold, rounds):
  """Up to `rounds` rounds of every seed that is not done.

  Args:
    trainer: static.
    states: [R, ...], given up to the result.
    seed_R: the seeds.
    scaffold: with a leading axis R or 1.
    rounds: traced.

  Returns:
    states, and a status: small arrays [R] of the states, and "loss" and "em"
    [R, heads] of this chunk.
  """
  count = len(seed_R)
  spread = lambda x: jnp.broadcast_to(x, (count, *jnp.shape(x)[1:]))
  one = lambda state, seed, own: trainer.chunk(state, seed, own, rounds)
  states, values = over_seeds(one, trainer.train.seed_axis)(
    states, seed_R, jax.tree.map(spread, scaffold)
  )
  # Copies, because the next chunk is given the states' own arrays.
  return states, values | jax.tree.map(jnp.copy, status(states))


def status(states) -> dict:
  """The small arrays of states."""
  names = (
    "step",
    "attempt",
    "begun",
    "done",
    "diverged",
    "stopped_at",
    "best_em",
    "best_step",
  )
  return {name: getattr(states, name) for name in names}


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def restart(trainer: Trainer, states, seed_R, mask_R):
  """States of which the marked ones begin their next attempt."""

  def one(state, seed, again):
    start = lambda state: trainer.restart(state, seed)
    return jax.lax.cond(again, start, lambda state: state, state)

  return over_seeds(one, "loop")(states, seed_R, mask_R)


@dataclasses.dataclass
class Runner:
  """The seeds of a run, and those of them that still train.

  Side by side, seeds that are done cost as much as those that are not: when
  half of them are, they leave the mapped axis (a compilation for each halving).

  Attributes:
    trainer: what is trained.
    seeds: [R].
    scaffold: with a leading axis R or 1.
    states: [R, ...].
  """

  trainer: Trainer
  seeds: np.ndarray
  scaffold: dict
  states: object

  def chunk(self, done_R, rounds: int):
    """Runs a chunk; the status of all seeds, not yet computed perhaps."""
    active = np.flatnonzero(~done_R)
    size = 1 << max(len(active) - 1, 0).bit_length()
    together = self.trainer.train.seed_axis == "vmap"
    if not together or size > len(self.seeds) // 2:
      self.states, found = chunk(
        self.trainer, self.states, self.seeds, self.scaffold, rounds
      )
      return found
    rest = np.flatnonzero(done_R)
    picked = np.concatenate([active, rest])[:size]
    part = jax.tree.map(lambda x: x[picked], self.states)
    own = jax.tree.map(lambda x: x[picked] if len(x) > 1 else x, self.scaffold)
    part, found = chunk(self.trainer, part, self.seeds[picked], own, rounds)
    put = lambda old, new: old.at[picked].set(new)
    self.states = jax.tree.map(put, self.states, part)
    blank = {
      name: jnp.full((len(self.seeds), *found[name].shape[1:]), jnp.nan)
      for name in ("loss", "em")
    }
    whole = jax.tree.map(jnp.copy, status(self.states)) | blank
    return whole | {
      name: put(blank[name], found[name]) for name in ("loss", "em")
    }

  def restart(self, mask_R) -> None:
    """The marked seeds begin their next attempt."""
    self.states = restart(
      self.trainer, self.states, self.seeds, jnp.asarray(mask_R)
    )
