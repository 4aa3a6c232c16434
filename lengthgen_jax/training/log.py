"""The log of a run, which a person watches, and the signals that stop it."""

import contextlib
import pathlib
import signal
import sys
import time
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from lengthgen_jax import hosts
from lengthgen_jax.results import records
from lengthgen_jax.training import optimizer
from lengthgen_jax.training.train_step import Status, TrainSpec

WATCHED = "watched.jsonl"  # rows that a run logs of its states


@contextlib.contextmanager
def stop_signals() -> Iterator[list[int]]:
  """Remembers SIGTERM and SIGINT in the list that it yields.

  Loops look there, save and leave.
  """
  received = []

  def remember(number, frame):
    if received and number == signal.SIGINT:
      raise KeyboardInterrupt  # a second Ctrl-C does not wait
    received.append(number)

  with contextlib.ExitStack() as after:
    for number in (signal.SIGTERM, signal.SIGINT):
      after.callback(signal.signal, number, signal.signal(number, remember))
    yield received


class Log:
  """A Log writes metrics.jsonl, TensorBoard, a progress bar and what a run
  watches, on the first host."""

  def __init__(
    self,
    spec: TrainSpec,
    seeds: Sequence[int],
    folder: pathlib.Path,
    steps: Sequence[int],
  ):
    """Opens the log of a run.

    Args:
      spec: what is trained.
      seeds: [R].
      folder: of the run.
      steps: [R], where each seed is; logged rows beyond are dropped, because
        the states that they are of were lost.
    """
    from tensorboardX import SummaryWriter
    from tqdm import tqdm

    # The main task's loss and exact match, then each hint's by its name.
    self.suffixes = ["", *(f"_{h}" for h in spec.experiment.heads[1:])]
    self.attempt_steps = spec.attempt_steps
    self.seeds = list(map(int, seeds))
    self.path = folder / "metrics.jsonl"
    self.watched_path = folder / WATCHED
    # By seed, the step of its last rows.
    self.watched_steps = dict(zip(self.seeds, steps, strict=True))
    for path in (self.path, self.watched_path):
      records.drop_after(path, self.watched_steps)
    step = max(steps)
    board, writes = str(folder / "tensorboard"), hosts.is_primary()
    self.board = SummaryWriter(board, purge_step=step, write_to_disk=writes)
    self.bar = tqdm(
      total=self.attempt_steps,
      initial=step,
      unit="step",
      desc=folder.name,
      file=sys.stderr,
      dynamic_ncols=True,
      disable=not writes,
    )
    # All rates are computed here: later the device would first finish the chunk
    # on its way.
    rate = jax.jit(jax.vmap(optimizer.schedule(spec.train)))
    self.rates = np.asarray(rate(np.arange(self.attempt_steps + 1)))
    self.clock = time.perf_counter()

  def write(self, status: Status) -> None:
    """Logs one chunk: a row per seed that trained in it."""
    seconds = time.perf_counter() - self.clock
    self.clock += seconds
    state, metrics = status
    rows = []
    for r, seed in enumerate(self.seeds):
      step, attempt_start = int(state.step[r]), int(state.attempt_start[r])
      row = {
        "step": step,
        "seed": seed,
        "learning_rate": float(self.rates[step - attempt_start]),
        "seconds": seconds,
      }
      for i, suffix in enumerate(self.suffixes):
        row[f"loss{suffix}"] = float(metrics.loss[r, i])
        row[f"em{suffix}"] = float(metrics.em[r, i])
      if np.isfinite(row["loss"]):
        rows.append(row)
        for name in sorted(set(row) - {"step", "seed", "seconds"}):
          self.board.add_scalar(f"seed{seed}/{name}", row[name], step)
    records.append(self.path, rows)
    if rows:
      loss = np.median([row["loss"] for row in rows])
      em = np.median([row["em"] for row in rows])
      self.bar.set_postfix_str(f"loss {loss:.4f}, EM {100 * em:.1f} %")
    last = int(np.argmax(state.step))
    self.bar.total = int(state.attempt_start[last]) + self.attempt_steps
    self.bar.update(int(state.step[last]) - self.bar.n)

  def write_watched(self, rows: list[dict]) -> None:
    """Appends those of the rows whose seeds moved since their last ones."""
    rows = [
      row for row in rows if row["step"] > self.watched_steps[row["seed"]]
    ]
    self.watched_steps |= {row["seed"]: row["step"] for row in rows}
    records.append(self.watched_path, rows)

  def close(self) -> None:
    """Closes the bar and TensorBoard."""
    self.bar.close()
    self.board.close()
