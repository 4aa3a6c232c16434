"""This module is the loop of training: it runs chunks, logs, saves, stops and
resumes."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import hosts, stopwatch
from lengthgen_jax.attention.biases.scaffold import SparsePlan
from lengthgen_jax.errors import Interrupted, check
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.training import train_step
from lengthgen_jax.training.checkpoint import Checkpoints
from lengthgen_jax.training.log import Log, stop_signals
from lengthgen_jax.training.mesh import SINGLE_DEVICE, AnyHostFlag, Mesh
from lengthgen_jax.training.optimizer import TrainConfig
from lengthgen_jax.training.train_step import Status, TrainSpec, TrainState


@dataclasses.dataclass(frozen=True)
class Run:
  """A Run says what is trained, and where it is stored.

  Attributes:
    experiment: the tasks, data and model.
    train: the optimizer, the schedule, and when a seed stops.
    seeds: the R seeds, which are trained together.
    scaffold: the bias by attention site, with a leading axis R or 1.
    folder: the folder of checkpoints and logs.
    save_every: the number of chunks between checkpoints.
    keep: the number of newest checkpoints that stay.
    report: function that prints a line of text.
    replay: inputs to train on again, with a leading axis R; see
      train_step.draw_batches.
    sparse_plan: the plan of attention along lines; None for dense attention.
    watch: function of the run and its states [R, ...] that returns rows for
      watched.jsonl; None for no probes during training.
    watch_every: the number of chunks between calls of `watch`.
    mesh: the devices.
  """

  experiment: Experiment
  train: TrainConfig
  seeds: tuple[int, ...]
  scaffold: dict
  folder: pathlib.Path
  save_every: int
  keep: int
  report: Callable[[str], None]
  replay: dict | None = None
  sparse_plan: SparsePlan | None = None
  watch: Callable[["Run", TrainState], list[dict]] | None = None
  watch_every: int = 1
  mesh: Mesh = SINGLE_DEVICE

  @property
  def spec(self) -> TrainSpec:
    """Returns what the run's compiled training steps depend on."""
    return TrainSpec(self.experiment, self.train, self.sparse_plan, self.mesh)

  def open_checkpoints(self, writes: bool = False) -> Checkpoints:
    """Returns the run's checkpoints, which the caller must close."""
    folder = self.folder / "checkpoints"
    return Checkpoints(folder, self.keep, self.seeds, writes)

  @property
  def seed_R(self) -> jax.Array:
    """Returns the seeds as an array [R]."""
    return jnp.array(self.seeds, jnp.int32)

  @property
  def abstract_states(self) -> TrainState:
    """Returns the shapes and dtypes of the states [R, ...]."""
    return train_step.init_seeds.eval_shape(self.spec, self.seed_R)


@stopwatch.phase("training")
def train(run: Run, initial: Sequence[dict] | None = None) -> TrainState:
  """Trains until all seeds are done, resuming from the newest checkpoint that
  can be restored.

  The status of a chunk is read when the next one has been dispatched, so that
  devices do not wait, or before the states are saved if that is earlier. It is
  harmless to read it late, because a seed that is done stays as it is until it
  starts again.

  Args:
    run: what is trained and where it is stored.
    initial: per seed, parameters to start from instead of fresh ones.

  Returns:
    The final states [R, ...].

  Raises:
    Interrupted: after SIGTERM or SIGINT, once the states are saved.
    UsageError: a checkpoint is another run's.
  """
  spec, seed_R = run.spec, run.seed_R
  with contextlib.ExitStack() as stack:
    checkpoints = stack.enter_context(
      contextlib.closing(run.open_checkpoints(writes=True))
    )
    states, saved_steps = restore_or_init(run, checkpoints, initial)
    progress = Progress(
      run, jax.device_get(train_step.without_params(run.mesh, states))
    )
    log = Log(spec, run.seeds, run.folder, progress.steps)
    stack.enter_context(contextlib.closing(log))
    signals = stack.enter_context(stop_signals())
    any_host_stops = AnyHostFlag(run.mesh)

    def log_and_restart(
      status: Status | None, states: TrainState
    ) -> TrainState:
      """Logs the status of a chunk, and restarts the seeds that failed."""
      if status is not None:
        status = jax.device_get(status)
        log.write(status)
        progress.update(status.state)
      failed_R = progress.pop_failed()
      if failed_R.any():
        states = train_step.restart_seeds(spec, states, seed_R, failed_R)
      return states

    def save(states: TrainState) -> list[int]:
      """Saves the states unless they are saved already; returns the steps of
      all seeds."""
      if progress.steps != saved_steps:
        checkpoints.save(max(progress.steps), states)
      return progress.steps

    chunk_count = max(progress.steps) // spec.chunk_steps
    states, unlogged = log_and_restart(None, states), None
    while not progress.done.all():
      states, status = train_step.train_unfinished_seeds(
        spec,
        states,
        seed_R,
        run.scaffold,
        progress.done,
        spec.chunk_rounds,
        run.replay,
      )
      chunk_count += 1
      states, unlogged = log_and_restart(unlogged, states), status
      if run.watch is not None and chunk_count % run.watch_every == 0:
        log.write_watched(run.watch(run, run.mesh.gather(states)))
      stop = any_host_stops(bool(signals))
      if chunk_count % run.save_every == 0 or stop:
        states, unlogged = log_and_restart(unlogged, states), None
        saved_steps = save(states)
      if stop:
        farthest = int(np.argmax(progress.steps))
        step, state = progress.steps[farthest], progress.state
        attempt_start = int(state.attempt_start[farthest])
        if progress.attempt[farthest] > state.attempt[farthest]:
          attempt_start = step  # the seed was just restarted
        raise Interrupted(
          f"stopped at step {step} of {attempt_start + spec.attempt_steps},"
          " saved; the same command goes on from there"
        )
    states = log_and_restart(unlogged, states)
    save(states)
  hosts.barrier("trained")
  return states


def restore_or_init(
  run: Run, checkpoints: Checkpoints, initial: Sequence[dict] | None
) -> tuple[TrainState, list[int] | None]:
  """Returns the states [R, ...] to start from, on the run's devices.

  Args:
    run, initial: as in `train`.
    checkpoints: those of the run.

  Returns:
    The states, and the step of each seed in the checkpoint that they are from;
    None without a checkpoint.
  """
  abstract = run.mesh.shard_shapes(run.abstract_states)
  step, states = checkpoints.restore(abstract, report=run.report)
  if states is not None:
    run.report(f"resumed at step {step}")
    step_R = jax.device_get(train_step.without_params(run.mesh, states)).step
    return states, step_R.tolist()
  if initial is None:
    states = train_step.init_seeds(run.spec, run.seed_R)
  else:
    # This way no program that draws parameters is compiled.
    stack = lambda fresh, *x: jnp.stack(x).astype(fresh.dtype)
    params = jax.tree.map(stack, run.abstract_states.params, *initial)
    states = train_step.init_seeds(run.spec, run.seed_R, params)
  return run.mesh.shard_seeds(states), None


def load(run: Run, checkpoint: str) -> TrainState:
  """Returns the states [R, ...] of a trained run; nothing on disk is changed.

  Args:
    run: what was trained and where it is stored.
    checkpoint: the number of a step; or "last" or "best", which are the same
      here: the newest checkpoint that can be restored. Its states hold both the
      last and the best parameters, of which the caller chooses.

  Raises:
    UsageError: there is no such checkpoint, it cannot be restored, or it does
      not fit the run.
  """
  step = int(checkpoint) if checkpoint.isdigit() else None
  with contextlib.closing(run.open_checkpoints()) as checkpoints:
    _, states = checkpoints.restore(
      run.abstract_states, step=step, report=run.report
    )
  check(
    states is not None,
    f"no checkpoint in {run.folder}: train it first (--mode=train)",
  )
  return states


class Progress:
  """Progress is what the host knows of the seeds: which are done or failed.

  Attributes:
    state: the states [R] without parameters, as last read.
    done: [R] bool, whether a seed trains no more.
    attempt: [R], the newest attempt that was started; the state of a seed that
      was just restarted is behind by one until it is read again.
  """

  def __init__(self, run: Run, state: TrainState):
    """Starts from the states of a checkpoint, or fresh ones."""
    self.run, self.state = run, state
    self.done, self.attempt = np.array(state.done), np.array(state.attempt)

  @property
  def steps(self) -> list[int]:
    """Returns the gradient steps that every seed has done."""
    return self.state.step.tolist()

  def update(self, state: TrainState) -> None:
    """Takes the states after a chunk, and reports the seeds that diverged or
    reached the target in it."""
    done = np.asarray(state.done) & (state.attempt == self.attempt)
    ended = np.flatnonzero(done & ~self.done)
    self.state, self.done = state, done
    for r in ended:
      seed, step = self.run.seeds[r], int(state.stopped_at[r])
      if state.diverged[r]:
        self.run.report(
          f"seed {seed}: loss or parameters are not finite at step {step}; back"
          " to the last finite ones (try a lower train.learning_rate)"
        )
      elif step >= 0:  # otherwise all its steps are used up
        self.run.report(
          f"seed {seed}: target reached at step {step}"
          f" (EM {100 * float(state.best_em[r]):.1f} %)"
        )

  def pop_failed(self) -> np.ndarray:
    """Returns which seeds [R] have failed and have another attempt.

    A seed has failed if it diverged, or if it used up its steps and its best
    exact match is below train.restart_below. From then on it counts as started
    again.
    """
    state, train = self.state, self.run.train
    fits = np.asarray(state.best_em) >= train.restart_below
    failed = np.asarray(state.diverged) | ((state.stopped_at < 0) & ~fits)
    failed &= self.done & (state.attempt < train.restarts)
    self.attempt += failed
    self.done &= ~failed
    for r in np.flatnonzero(failed):
      em = 100 * max(float(state.best_em[r]), 0.0)  # -1 before any
      reason = f"train.restart_below={train.restart_below}"
      if state.diverged[r]:
        reason = "diverged"
      self.run.report(
        f"seed {self.run.seeds[r]}: best EM {em:.1f} % by step {state.step[r]},"
        f" {reason}; starts again from other parameters"
      )
    return failed
