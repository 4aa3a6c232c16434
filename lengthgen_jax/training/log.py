"""This module logs a training run, and receives the signals that stop it."""

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

WATCHED = "watched.jsonl"  # rows of the probes that run during training


@contextlib.contextmanager
def stop_signals() -> Iterator[list[int]]:
  """Yields a list to which SIGTERM and SIGINT are appended when they arrive,
  instead of stopping the process.

  The training loop reads the list after each chunk; if it is not empty, it
  saves and raises Interrupted. A SIGINT (Ctrl-C) after another signal raises
  KeyboardInterrupt at once.
  """
  received = []

  def remember(number, frame):
    if received and number == signal.SIGINT:
      raise KeyboardInterrupt  # does not wait for the chunk
    received.append(number)

  with contextlib.ExitStack() as stack:
    for number in (signal.SIGTERM, signal.SIGINT):
      previous_handler = signal.signal(number, remember)
      stack.callback(signal.signal, number, previous_handler)
    yield received


class Log:
  """A Log writes what a training run reports, on the first host alone.

  It writes metrics.jsonl, watched.jsonl (rows of the probes that run during
  training), TensorBoard summaries and a progress bar.
  """

  def __init__(
    self,
    spec: TrainSpec,
    seeds: Sequence[int],
    folder: pathlib.Path,
    steps: Sequence[int],
  ):
    """Opens the log of a run.

    Args:
      spec: The training.
      seeds: The R seeds.
      folder: The folder of the run.
      steps: The step of each seed in the checkpoint that training resumes from,
        0 without one. Rows of later steps are dropped, because those steps are
        trained again.
    """
    from tensorboardX import SummaryWriter
    from tqdm import tqdm

    # The metrics of the main task are "loss" and "em", those of a hint end with
    # the name of its head.
    hints = spec.experiment.heads[1:]
    self.suffixes = ["", *(f"_{hint}" for hint in hints)]
    self.attempt_steps = spec.attempt_steps
    self.seeds = list(map(int, seeds))
    self.path = folder / "metrics.jsonl"
    self.watched_path = folder / WATCHED
    for path in (self.path, self.watched_path):
      records.drop_after(path, dict(zip(self.seeds, steps, strict=True)))
    # The step of each seed's last rows in watched.jsonl.
    self.watched_steps = dict.fromkeys(self.seeds, 0)
    for row in records.read(self.watched_path):
      self.watched_steps[row["seed"]] = row["step"]
    step = max(steps)
    is_primary = hosts.is_primary()
    self.summary_writer = SummaryWriter(
      str(folder / "tensorboard"),
      purge_step=step + 1,  # what is at this step stays
      write_to_disk=is_primary,
    )
    self.progress_bar = tqdm(
      total=self.attempt_steps,
      initial=step,
      unit="step",
      desc=folder.name,
      file=sys.stderr,
      dynamic_ncols=True,
      disable=not is_primary,
    )
    # All learning rates are computed here, because during training the device
    # would first have to finish the running chunk.
    schedule = jax.jit(jax.vmap(optimizer.make_schedule(spec.train)))
    self.learning_rates = np.asarray(
      schedule(np.arange(self.attempt_steps + 1))
    )
    self.last_time = time.perf_counter()

  def write(self, status: Status) -> None:
    """Logs one chunk: a row for each seed whose loss in it is finite; that of a
    seed that was done before is NaN."""
    seconds = time.perf_counter() - self.last_time
    self.last_time += seconds
    state, metrics = status
    rows = []
    for r, seed in enumerate(self.seeds):
      step, attempt_start = int(state.step[r]), int(state.attempt_start[r])
      row = {
        "step": step,
        "seed": seed,
        "learning_rate": float(self.learning_rates[step - attempt_start]),
        "seconds": seconds,
      }
      for head, suffix in enumerate(self.suffixes):
        row[f"loss{suffix}"] = float(metrics.loss[r, head])
        row[f"em{suffix}"] = float(metrics.em[r, head])
      if np.isfinite(row["loss"]):
        rows.append(row)
        for name in sorted(set(row) - {"step", "seed", "seconds"}):
          self.summary_writer.add_scalar(f"seed{seed}/{name}", row[name], step)
    records.append(self.path, rows)
    if rows:
      loss = np.median([row["loss"] for row in rows])
      em = np.median([row["em"] for row in rows])
      self.progress_bar.set_postfix_str(f"loss {loss:.4f}, EM {100 * em:.1f} %")
    # The bar shows the seed that has trained furthest.
    r = int(np.argmax(state.step))
    self.progress_bar.total = int(state.attempt_start[r]) + self.attempt_steps
    self.progress_bar.update(int(state.step[r]) - self.progress_bar.n)

  def write_watched(self, rows: list[dict]) -> None:
    """Appends rows of probes, except those of seeds that have not trained since
    their last rows."""
    rows = [
      row for row in rows if row["step"] > self.watched_steps[row["seed"]]
    ]
    self.watched_steps |= {row["seed"]: row["step"] for row in rows}
    records.append(self.watched_path, rows)

  def close(self) -> None:
    """Closes the bar and TensorBoard."""
    self.progress_bar.close()
    self.summary_writer.close()
