"""Logs a training run, and receives the signals that stop it."""

import contextlib
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from lengthgen_jax import hosts
from lengthgen_jax.results import records


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
  """What a training run reports, on the first host alone: metrics.jsonl,
  TensorBoard summaries and a progress bar."""

  def __init__(
    self,
    folder: pathlib.Path,
    output_heads: Sequence[str],
    learning_rate: Callable[[int], Any],
    num_steps: int,
    last_steps: dict[int, int],
  ):
    """Opens the log of a run that resumes from `last_steps`, the step of each
    seed, 0 without a checkpoint. Rows of later steps are dropped, because those
    steps are trained again."""
    from tensorboardX import SummaryWriter
    from tqdm import tqdm

    # The metrics of the main task are "loss" and "em", those of a hint end with
    # the name of its head.
    self.suffixes = ["", *(f"_{head}" for head in output_heads[1:])]
    self.learning_rate = learning_rate
    self.seeds, step = list(last_steps), max(last_steps.values())
    self.path = folder / "metrics.jsonl"
    records.drop_after(self.path, last_steps)
    self.summary_writer = SummaryWriter(
      str(folder / "tensorboard"),
      purge_step=step + 1,  # what is at this step stays
      write_to_disk=hosts.is_primary(),
    )
    self.progress_bar = tqdm(
      total=num_steps,
      initial=step,
      unit="step",
      desc=folder.name,
      file=sys.stderr,
      dynamic_ncols=True,
      disable=not hosts.is_primary(),
    )
    self.last_time = time.perf_counter()

  def write(self, states: Any, metrics: Any) -> None:
    """Logs one chunk, after which the TrainStates [R] and the Metrics [R] are
    these: a row for each seed whose loss in it is finite; that of a seed that
    was done before is NaN."""
    seconds = time.perf_counter() - self.last_time
    self.last_time += seconds
    rows = []
    for r in np.flatnonzero(np.isfinite(metrics.loss[:, 0])):
      step, seed = int(states.step[r]), self.seeds[r]
      curves = {"learning_rate": float(self.learning_rate(step))}
      for head, suffix in enumerate(self.suffixes):
        curves[f"loss{suffix}"] = float(metrics.loss[r, head])
        curves[f"em{suffix}"] = float(metrics.em[r, head])
      rows.append({"step": step, "seed": seed, "seconds": seconds} | curves)
      for name, value in curves.items():
        self.summary_writer.add_scalar(f"seed{seed}/{name}", value, step)
    records.append(self.path, rows)
    if rows:
      loss = np.median([row["loss"] for row in rows])
      em = np.median([row["em"] for row in rows])
      self.progress_bar.set_postfix_str(f"loss {loss:.4f}, EM {100 * em:.1f} %")
    # The bar shows the seed that has trained furthest.
    self.progress_bar.update(int(max(states.step)) - self.progress_bar.n)

  def close(self) -> None:
    self.progress_bar.close()
    self.summary_writer.close()
