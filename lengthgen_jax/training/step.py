"""This module trains by pure functions of one seed, which know no other
seed."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lengthgen_jax import rng
from lengthgen_jax.training import optimizer
from lengthgen_jax.training import state as states
from lengthgen_jax.training.mesh import ONE, Mesh
from lengthgen_jax.training.state import TrainState


@dataclasses.dataclass(frozen=True)
class Trainer:
  """A Trainer is an experiment and how it is trained; hashable, so static under
  jit.

  Attributes:
    experiment: the Experiment: tasks, data, model and plan.
    train: a TrainConfig.
    open_heads: of attention along lines; None: every pair (Experiment.sites).
    mesh: the devices.
  """

  experiment: Any
  train: optimizer.TrainConfig
  open_heads: tuple | None = None
  mesh: Mesh = ONE

  @property
  def attempt_steps(self) -> int:
    """Returns the number of steps of an attempt: whole rounds."""
    lessons = len(self.experiment.lessons)
    return -(-self.train.steps // lessons) * lessons

  @property
  def rounds(self) -> int:
    """Returns the number of rounds of a chunk."""
    return max(self.train.chunk // len(self.experiment.lessons), 1)

  @property
  def chunk_steps(self) -> int:
    """Returns the number of gradient steps of a chunk."""
    return self.rounds * len(self.experiment.lessons)

  def init(
    self, seed: jax.Array | int, attempt: jax.Array | int = 0
  ) -> TrainState:
    """Returns the state before the first step, with an attempt's parameters."""
    params = self.experiment.init(seed, attempt)
    return TrainState(
      step=jnp.int32(0),
      attempt=jnp.int32(attempt),
      begun=jnp.int32(0),
      params=params,
      opt_state=optimizer.make(self.train).init(params),
      done=jnp.array(False),
      diverged=jnp.array(False),
      stopped_at=jnp.int32(-1),
      best_em=jnp.float32(-1.0),
      best_step=jnp.int32(0),
      best_params=jax.tree.map(jnp.copy, params),
    )

  def restart(self, state: TrainState, seed: jax.Array) -> TrainState:
    """Returns a state that begins its next attempt with other parameters."""
    names = ("step", "best_em", "best_step", "best_params")
    unchanged = {name: getattr(state, name) for name in names}
    return self.init(seed, state.attempt + 1).replace(
      begun=state.step, **unchanged
    )

  def chunk(
    self,
    state: TrainState,
    seed: jax.Array,
    scaffold: dict,
    rounds: jax.Array | int,
    replay: dict | None = None,
  ) -> tuple[TrainState, dict]:
    """Trains one seed for `rounds` (traced) rounds, or what its attempt has
    left.

    Args:
      state: of the seed; one that is done stays as it is.
      seed: traced.
      scaffold: of this seed.
      rounds: each of the lessons once.
      replay: of this seed, inputs that a share of every batch is drawn from:
        "items" [n, operands, longest], of which the first "count" are there; or
        None.

    Returns:
      state, and "loss" and "em" [heads] of the chunk (NaN if it was done).
    """
    lessons = len(self.experiment.lessons)
    rounds_left = (state.begun + self.attempt_steps - state.step) // lessons
    blank = jnp.full(len(self.experiment.heads), jnp.nan)
    blank = {"loss": blank, "em": blank.astype(jnp.float32)}
    skip = lambda state: (state, blank)
    rounds = jnp.minimum(rounds, rounds_left)
    train = lambda state: self._train(state, seed, scaffold, replay, rounds)
    return jax.lax.cond(state.done, skip, train, state)

  def _train(self, state, seed, scaffold, replay, rounds):
    """Trains a chunk of a seed that is not done."""
    lessons, heads = self.experiment.lessons, self.experiment.heads
    # These say which heads each lesson trains, and how many lessons a head has.
    indices = [
      [heads.index(share.head) for share in shares] for shares in lessons
    ]
    times = np.bincount(np.concatenate(indices), minlength=len(heads))

    def one_round(i, carry):
      params, opt_state, loss_sums = carry
      for k, lesson in enumerate(lessons):
        now_step = state.step + i * len(lessons) + k
        params, opt_state, losses = self.train_step(
          params, opt_state, seed, now_step, lesson, scaffold, replay
        )
        loss_sums = loss_sums.at[np.array(indices[k])].add(losses)
      return params, opt_state, loss_sums

    params, opt_state, loss_sums = jax.lax.fori_loop(
      0,
      rounds,
      one_round,
      (state.params, state.opt_state, jnp.zeros(len(heads))),
    )
    step = state.step + rounds * len(lessons)
    em = self.validate(params, seed, step, scaffold)
    new_state = self._judged(
      state, step, params, opt_state, loss_sums.sum(), em[0]
    )
    return new_state, {"loss": loss_sums / (rounds * times), "em": em}

  def _judged(self, state, step, params, opt_state, loss, em) -> TrainState:
    """Returns the state after a chunk.

    If its parameters are not finite, it gets those from before the chunk again.
    """
    sound = jnp.isfinite(loss) & states.finite(params)
    params, opt_state = states.select(
      sound, (params, opt_state), (state.params, state.opt_state)
    )
    better = sound & (em > state.best_em)
    reached = sound & (em >= self.train.target_exact_match)
    ended = step - state.begun >= self.attempt_steps
    return state.replace(
      step=step,
      params=params,
      opt_state=opt_state,
      done=~sound | reached | ended,
      diverged=~sound,
      stopped_at=jnp.where(~sound | reached, step, -1),
      best_em=jnp.where(better, em, state.best_em),
      best_step=jnp.where(better, step, state.best_step),
      best_params=states.select(better, params, state.best_params),
    )

  def train_step(
    self,
    params: dict,
    opt_state: optax.OptState,
    seed: jax.Array,
    step: jax.Array,
    lesson: tuple,
    scaffold: dict,
    replay: dict | None = None,
  ) -> tuple[dict, optax.OptState, jax.Array]:
    """Takes one gradient step; pure. The data are f(seed, step, replay).

    Args:
      params, opt_state: of one seed.
      seed, step: traced.
      lesson: which heads learn from what, static.
      scaffold, replay: of this seed.

    Returns:
      params, opt_state (of idle heads untouched, but for Adam's count of steps,
      which is one for all), and each share's mean loss.
    """

    def loss_fn(params):
      losses = [
        self._share_loss(params, share, scaffold, seed, step, replay)
        for share in lesson
      ]
      pairs = zip(lesson, losses, strict=True)
      return sum(share.weight * loss for share, loss in pairs), jnp.stack(
        losses
      )

    (_, losses), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
    old = params, opt_state
    update = optimizer.make(self.train).update
    updates, opt_state = update(grads, opt_state, params)
    new = optax.apply_updates(params, updates), opt_state
    idle = self.experiment.idle_params(lesson)
    return *states.keep(idle, old, new), losses

  def _share_loss(self, params, share, scaffold, seed, step, replay):
    """Returns the mean loss (nats per scored token) of one head's examples."""
    experiment = self.experiment
    data_key = jax.random.fold_in(rng.stream(seed, "data"), step)
    # Each head and part has noise of its own.
    drop_key = jax.random.fold_in(rng.stream(seed, "dropout"), step)
    drop_key = jax.random.fold_in(drop_key, experiment.heads.index(share.head))
    turn = step // len(experiment.lessons)
    total, weight = 0.0, 0.0
    for part in share.parts:
      batch = experiment.sample(data_key, share.head, part, turn)
      if replay is not None and share.head == experiment.task.name:
        count = int(self.train.replay_share * part.count)
        key = jax.random.fold_in(data_key, count)
        batch = experiment.data[0].with_replay(batch, replay, key, count, turn)
      batch = self.mesh.split(batch)
      key = jax.random.fold_in(drop_key, part.bucket)
      args = scaffold, batch, share.head, key, self.open_heads
      loss_sum, count = experiment.loss(params, *args, self.mesh.shape[1])
      total, weight = total + loss_sum, weight + count
    return total / weight

  def validate(
    self, params: dict, seed: jax.Array, step: jax.Array, scaffold: dict
  ) -> jax.Array:
    """Returns the in-range exact match [heads] on held-out examples, at every
    width."""
    experiment = self.experiment
    key = jax.random.fold_in(rng.stream(seed, "eval"), step)

    def exact(turn, head, part):
      """Returns exact match [B] of one head's examples of one width."""
      turn_key = jax.random.fold_in(key, turn)
      batch = experiment.sample(turn_key, head, part, turn, held_out=True)
      batch = self.mesh.split(batch)
      options = {"open_heads": self.open_heads}
      return experiment.hits(params, scaffold, batch, head, **options)[1]

    def one_turn(turn):
      exact_matches = [
        jnp.concatenate([exact(turn, head, part) for part in parts]).mean(
          dtype=jnp.float32
        )
        for head, _, parts in experiment.validation
      ]
      return jnp.stack(exact_matches)

    return jax.lax.map(one_turn, jnp.arange(experiment.turns)).mean(axis=0)
