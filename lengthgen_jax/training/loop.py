"""This module is the loop around chunks: dispatch, log, save, stop, resume."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import hosts
from lengthgen_jax.errors import Interrupted, check
from lengthgen_jax.results import records
from lengthgen_jax.training import seeds as many
from lengthgen_jax.training.checkpoint import Checkpoints
from lengthgen_jax.training.mesh import ONE, AnyHostFlag, Mesh
from lengthgen_jax.training.optimizer import TrainConfig
from lengthgen_jax.training.progress import Log, stop_signals
from lengthgen_jax.training.state import TrainState
from lengthgen_jax.training.step import Trainer

WATCHED = "watched.jsonl"  # what is logged of a run's states


@dataclasses.dataclass(frozen=True)
class Run:
  """A Run says what is trained, and where it is stored.

  Attributes:
    experiment: the Experiment: tasks, data, model and plan.
    train: how it is trained.
    seeds: R of them.
    scaffold: with a leading axis R or 1.
    folder: of checkpoints and logs.
    save_every: chunks between checkpoints.
    keep: number of newest checkpoints that stay.
    config: what a checkpoint says it was made with, a plain dict.
    report: function of one line of text.
    replay: inputs to train on again, with a leading axis R; see Trainer.chunk.
    open_heads: of attention along lines; see Trainer.
    watch: function of the run and its states that returns rows, for a log.
    watch_every: chunks between its calls.
    mesh: the devices.
  """

  experiment: Any
  train: TrainConfig
  seeds: tuple[int, ...]
  scaffold: dict
  folder: pathlib.Path
  save_every: int
  keep: int
  config: dict
  report: Callable
  replay: dict | None = None
  open_heads: tuple | None = None
  watch: Callable | None = None
  watch_every: int = 1
  mesh: Mesh = ONE

  @property
  def trainer(self) -> Trainer:
    """Returns a Trainer of the run's experiment, settings and devices."""
    return Trainer(self.experiment, self.train, self.open_heads, self.mesh)

  @property
  def store(self) -> Checkpoints:
    """Returns the checkpoints in the run's folder."""
    return Checkpoints(self.folder / "checkpoints", self.keep, self.seeds)

  @property
  def seed_R(self) -> jax.Array:
    """Returns the seeds as an array [R]."""
    return jnp.array(self.seeds, jnp.int32)

  @property
  def abstract(self) -> TrainState:
    """Returns the shapes and dtypes of the states [R, ...]."""
    return jax.eval_shape(partial(many.init, self.trainer), self.seed_R)


def train(run: Run, initial: Sequence[dict] | None = None) -> TrainState:
  """Trains, resuming from the newest sound checkpoint.

  Args:
    run: what is trained and where it is stored.
    initial: per seed, parameters to start from instead of fresh ones.

  Returns:
    The final states [R, ...].

  Raises:
    Interrupted: after SIGTERM or SIGINT, once the states are saved.
    UsageError: a checkpoint is another run's.
  """
  with contextlib.closing(run.store) as store:
    abstract = run.mesh.of_seeds(run.abstract)
    step, states = store.restore(abstract, report=run.report, repair=True)
    if states is not None:
      run.report(f"resumed at step {step}")
    else:
      states = many.init(run.trainer, run.seed_R)
      if initial is not None:
        stack = lambda fresh, *x: jnp.stack(x).astype(fresh.dtype)
        params = jax.tree.map(stack, states.params, *initial)
        states = states.replace(params=params)
      states = run.mesh.place(states)
    states = _Loop(run, states, store).go()
  hosts.barrier("trained")
  return states


def load(run: Run, checkpoint: str) -> TrainState:
  """Returns the states of a trained run; nothing on disk is touched.

  Args:
    run: what was trained and where it is stored.
    checkpoint: "last", "best" or the number of a step.

  Raises:
    UsageError: there is no such checkpoint.
  """
  check(
    (run.folder / "checkpoints").is_dir(),
    f"no checkpoint in {run.folder}: train it first (--mode=train)",
  )
  step = int(checkpoint) if checkpoint.isdigit() else None
  with contextlib.closing(run.store) as store:
    _, states = store.restore(run.abstract, step=step, report=run.report)
  check(
    states is not None, f"no sound checkpoint in {run.folder}: train it first"
  )
  return states


class _Loop:
  """This is one call of `train`: chunks until no seed has anything left to do.

  The status of a chunk is read once the next one is on its way. That is
  harmless, because a seed that is done stays as it is until it starts again.
  """

  def __init__(self, run: Run, states: TrainState, store: Checkpoints):
    self.run, self.states, self.store = run, states, store
    self.seeds, self.on_its_way = run.seed_R, None
    self.stops = AnyHostFlag(run.mesh)
    self.status = jax.device_get(many.status(run.mesh, states))
    self.attempt = self.status["attempt"].copy()
    self.done = self.status["done"].copy()
    steps = self.status["step"].tolist()
    self.saved = steps if store.steps() else None  # None: nothing is saved yet
    self.log = Log(run.trainer, run.seeds, run.folder, steps)
    self.watched = dict(zip(run.seeds, steps, strict=True))
    records.drop_after(run.folder / WATCHED, self.watched)

  def go(self) -> TrainState:
    """Trains until all seeds are done, and returns the final states."""
    run = self.run
    chunks = int(self.status["step"].max()) // run.trainer.chunk_steps
    self._restart()
    with stop_signals() as stops, contextlib.closing(self.log):
      while not self.done.all():
        self.states, status = many.chunk_of_unfinished(
          run.trainer,
          self.states,
          self.seeds,
          run.scaffold,
          self.done,
          run.trainer.rounds,
          run.replay,
        )
        chunks += 1
        self._read()
        self.on_its_way = status
        if run.watch and chunks % run.watch_every == 0:
          self._watch()
        stop = self.stops(bool(stops))
        if chunks % run.save_every == 0 or stop:
          self._save()
        if stop:
          raise Interrupted(
            f"stopped at step {self.status['step'].max()} of"
            f" {run.train.steps}, saved; the same command goes on from there"
          )
      self._save()
    return self.states

  def _watch(self) -> None:
    """Logs what `run.watch` returns for the seeds that moved."""
    rows = [
      row
      for row in self.run.watch(self.run, self.run.mesh.read(self.states))
      if row["step"] > self.watched[row["seed"]]
    ]
    self.watched |= {row["seed"]: row["step"] for row in rows}
    records.append(self.run.folder / WATCHED, rows)

  def _read(self) -> None:
    """Logs the chunk on its way, reports the seeds that ended, and restarts
    some."""
    if self.on_its_way is None:
      return
    self.status = jax.device_get(self.on_its_way)  # waits for the chunk
    self.on_its_way = None
    self.log.write(self.status)
    # A seed that is to start again may not have done so yet.
    done = self.status["done"] & (self.status["attempt"] == self.attempt)
    ended, self.done = done & ~self.done, done
    for r in np.flatnonzero(ended):
      self._tell(int(r))
    self._restart()

  def _restart(self) -> None:
    """Begins the next attempt of seeds that did not fit, if they have one."""
    status, train = self.status, self.run.train
    fits = status["best_em"] >= train.restart_below
    failed = status["diverged"] | ((status["stopped_at"] < 0) & ~fits)
    again = self.done & failed & (status["attempt"] < train.restarts)
    if not again.any():
      return
    self.states = many.restart(self.run.trainer, self.states, self.seeds, again)
    self.attempt += again
    self.done &= ~again
    for r in np.flatnonzero(again):
      em = 100 * max(float(status["best_em"][r]), 0.0)  # -1 before any
      self.run.report(
        f"seed {self.run.seeds[r]}: best EM {em:.1f} %"
        f" at step {status['step'][r]}, train.restart_below="
        f"{train.restart_below}; starts again from other parameters"
      )

  def _tell(self, r: int) -> None:
    """Reports how a seed ended; nothing if all its steps are used up."""
    seed, step = self.run.seeds[r], int(self.status["stopped_at"][r])
    em = 100 * float(self.status["best_em"][r])
    if self.status["diverged"][r]:
      self.run.report(
        f"seed {seed}: loss or parameters are not finite at step {step}; back"
        " to the last finite ones (try a lower train.learning_rate)"
      )
    elif step >= 0:
      words = f"target reached at step {step} (EM {em:.1f} %)"
      self.run.report(f"seed {seed}: {words}")

  def _save(self) -> None:
    """Reads the chunk on its way and saves, unless no seed has moved since."""
    self._read()
    steps = self.status["step"].tolist()
    if steps != self.saved:
      self.store.save(max(steps), self.states, self.run.config)
      self.saved = steps
