"""The loop around chunks: dispatch, log, save, stop, go on."""

import dataclasses
import pathlib
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.errors import Interrupted, check
from lengthgen_jax.training import seeds as many
from lengthgen_jax.training.checkpoint import Checkpoints
from lengthgen_jax.training.optimizer import TrainConfig
from lengthgen_jax.training.progress import Log, StopSignal
from lengthgen_jax.training.step import Trainer


@dataclasses.dataclass(frozen=True)
class Run:
  """What is trained, and where it goes.

  Attributes:
    experiment: tasks, data, model and plan.
    train: how it is trained.
    seeds: R of them.
    scaffold: with a leading axis R or 1.
    folder: of checkpoints and logs.
    save_every: chunks between checkpoints.
    keep: newest checkpoints kept.
    config: what a checkpoint says it was made with, a plain dict.
    report: function of one line of text.
  """

  experiment: object
  train: TrainConfig
  seeds: tuple[int, ...]
  scaffold: dict
  folder: pathlib.Path
  save_every: int
  keep: int
  config: dict
  report: Callable

  @property
  def trainer(self) -> Trainer:
    return Trainer(self.experiment, self.train)

  @property
  def store(self) -> Checkpoints:
    return Checkpoints(self.folder / "checkpoints", self.keep)

  @property
  def abstract(self):
    """Shapes and dtypes of the states [R, ...]."""
    start = lambda seeds: many.init(self.trainer, seeds)
    return jax.eval_shape(start, jnp.array(self.seeds, jnp.int32))


def train(run: Run, initial=None):
  """Trains, resuming from the newest sound checkpoint.

  Args:
    run: what and where.
    initial: per seed, parameters to start from instead of fresh ones.

  Returns:
    The final states [R, ...].

  Raises:
    Interrupted: after SIGTERM or SIGINT, once the states are saved.
    UsageError: a checkpoint is another run's.
  """
  store = run.store
  try:
    step, states = store.restore(run.abstract, report=run.report, repair=True)
    seeds = jnp.array(run.seeds, jnp.int32)
    if states is None:
      states = many.init(run.trainer, seeds)
      if initial is not None:
        params = jax.tree.map(lambda *x: jnp.stack(x), *initial)
        states = states.replace(params=params)
    else:
      run.report(f"resumed at step {step}")
    runner = many.Runner(run.trainer, seeds, run.scaffold, states)
    return _Loop(run, runner, store).go()
  finally:
    store.close()


def load(run: Run, checkpoint: str):
  """States of a trained run; nothing on disk is touched.

  Args:
    run: what and where.
    checkpoint: "last", "best" or the number of a step.

  Raises:
    UsageError: there is no such checkpoint.
  """
  check(
    (run.folder / "checkpoints").is_dir(),
    f"no checkpoint in {run.folder}: train it first (--mode=train)",
  )
  store = run.store
  try:
    step = int(checkpoint) if checkpoint.isdigit() else None
    _, states = store.restore(run.abstract, step=step, report=run.report)
  finally:
    store.close()
  check(
    states is not None, f"no sound checkpoint in {run.folder}: train it first"
  )
  return states


class _Loop:
  """One call of `train`: chunks until no seed has anything left to do.

  The status of a chunk is read once the next one is on its way. That is
  harmless, because a seed that is done stays as it is until it starts again.
  """

  def __init__(self, run: Run, runner: many.Runner, store: Checkpoints):
    self.run, self.runner, self.store = run, runner, store
    self.status = jax.device_get(many.status(runner.states))
    self.attempt = self.status["attempt"].copy()
    self.done = self.status["done"].copy()
    self.saved = self.status["step"].tolist()
    self.log = Log(
      run.trainer, run.seeds, run.folder, self.status["step"].tolist()
    )

  @property
  def step(self) -> int:
    """The step of the seed that is farthest."""
    return int(self.status["step"].max())

  def go(self):
    """The final states."""
    lessons = len(self.run.experiment.lessons)
    rounds = self.run.train.rounds(lessons)
    chunks, on_its_way = 0, None
    self._restart()
    with StopSignal() as stop:
      while not self.done.all():
        found = self.runner.chunk(self.done, rounds)
        chunks += 1
        self._read(on_its_way)
        on_its_way = found
        if chunks % self.run.save_every == 0 or stop.received:
          self._read(on_its_way)
          on_its_way = None
          self._save()
        if stop.received:
          self.log.close()
          raise Interrupted(
            f"stopped at step {self.step} of {self.run.train.steps}, saved;"
            " the same command goes on from there"
          )
      self._read(on_its_way)
      self._save()
    self.log.close()
    return self.runner.states

  def _read(self, found) -> None:
    """Logs a chunk, says what became of its seeds, starts some again."""
    if found is None:
      return
    before = self.done.copy()
    self.status = jax.device_get(found)  # waits for the chunk
    self.log.write(self.status)
    # A seed that was told to start again may not have done so yet.
    current = self.status["attempt"] == self.attempt
    self.done = self.status["done"] & current
    for r in np.flatnonzero(self.done & ~before):
      line = self._news(int(r))
      if line:
        self.run.report(line)
    self._restart()

  def _restart(self) -> None:
    """Begins the next attempt of seeds that did not fit, if they have one."""
    status, train = self.status, self.run.train
    fits = status["best_em"] >= train.restart_below
    failed = status["diverged"] | ((status["stopped_at"] < 0) & ~fits)
    again = self.done & failed & (status["attempt"] < train.restarts)
    if not again.any():
      return
    self.runner.restart(again)
    self.attempt += again
    self.done &= ~again
    for r in np.flatnonzero(again):
      em = 100 * max(float(status["best_em"][r]), 0.0)  # -1 before any
      self.run.report(
        f"seed {self.run.seeds[r]}: best EM {em:.1f} %"
        f" at step {status['step'][r]}, train.restart_below="
        f"{train.restart_below}; starts again from other parameters"
      )

  def _news(self, r: int) -> str:
    """What became of a seed that is done; nothing if its steps are."""
    seed, step = self.run.seeds[r], int(self.status["stopped_at"][r])
    if self.status["diverged"][r]:
      return (
        f"seed {seed}: loss or parameters are not finite at step {step}; back"
        " to the last finite ones (try a lower train.learning_rate)"
      )
    em = 100 * float(self.status["best_em"][r])
    found = f"seed {seed}: target reached at step {step} (EM {em:.1f} %)"
    return found if step >= 0 else ""

  def _save(self) -> None:
    """Saves, unless no seed has moved since."""
    states = self.runner.states
    steps = states.step.tolist()
    if steps != self.saved:
      self.store.save(max(steps), states, self.run.config)
      self.saved = steps
