"""What a person sees of a run, and how they stop it."""

import pathlib
import signal
import sys
import time

import jax
import numpy as np

from lengthgen_jax import optimizer, records


class StopSignal:
  """Remembers SIGTERM and SIGINT while training; the loop saves and leaves."""

  def __init__(self):
    self.received = False

  def __enter__(self):
    self._old = {
      number: signal.signal(number, self._handle)
      for number in (signal.SIGTERM, signal.SIGINT)
    }

  def _handle(self, number, frame):
    if self.received and number == signal.SIGINT:
      raise KeyboardInterrupt  # a second Ctrl-C does not wait
    self.received = True

  def __exit__(self, *error):
    for number, handler in self._old.items():
      signal.signal(number, handler)


class Log:
  """Progress bar, metrics.jsonl and TensorBoard."""

  def __init__(self, trainer, folder: pathlib.Path, step: int):
    from tensorboardX import SummaryWriter
    from tqdm import tqdm

    config = self.config = trainer.config
    self.heads = trainer.experiment.heads
    self.attempt_steps = trainer.attempt_steps
    self.path = folder / "metrics.jsonl"
    records.drop_after(self.path, step)
    self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=step)
    self.bar = tqdm(
      total=trainer.attempt_steps,
      initial=step,
      unit="step",
      desc=folder.name,
      file=sys.stderr,
      dynamic_ncols=True,
    )
    self.rate = optimizer.schedule(config.train)
    self.clock = time.perf_counter()

  def write(self, state, values) -> None:
    """Logs one chunk: a row per seed that still trains."""
    step = int(state.step)
    earlier = (step - 1) // self.attempt_steps * self.attempt_steps
    values = jax.device_get(values)  # waits for the chunk
    seconds = time.perf_counter() - self.clock
    self.clock += seconds
    rows = []
    for r, seed in enumerate(self.config.seeds):
      row = {
        "step": step,
        "seed": seed,
        "learning_rate": float(self.rate(step - earlier)),
        "seconds": seconds,
      }
      # The main task's loss and exact match, then each hint's by its name.
      for i, head in enumerate(self.heads):
        suffix = f"_{head}" if i else ""
        row["loss" + suffix] = float(values["loss"][r][i])
        row["em" + suffix] = float(values["em"][r][i])
      if np.isfinite(row["loss"]):
        rows.append(row)
        for name in sorted(set(row) - {"step", "seed", "seconds"}):
          self.board.add_scalar(f"seed{seed}/{name}", row[name], step)
    records.append(self.path, rows)
    if rows:
      loss = np.median([row["loss"] for row in rows])
      em = np.median([row["em"] for row in rows])
      self.bar.set_postfix_str(f"loss {loss:.4f}, EM {100 * em:.1f} %")
    self.bar.total = earlier + self.attempt_steps
    self.bar.update(step - self.bar.n)

  def close(self) -> None:
    self.bar.close()
    self.board.close()
