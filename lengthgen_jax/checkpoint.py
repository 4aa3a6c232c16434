"""Checkpoints with Orbax: asynchronous, verified, the bad ones moved aside."""

import json
import pathlib
import zlib

import jax
import numpy as np
import orbax.checkpoint as ocp

from lengthgen_jax.errors import UsageError


class Checkpoints:
  """The checkpoints of one run, in one folder.

  The state carries the best parameters of every seed, so keeping the newest
  `keep` checkpoints keeps the best as well.
  """

  def __init__(self, folder, keep: int = 2):
    self.folder = pathlib.Path(folder).absolute()
    self._manager = ocp.CheckpointManager(
      self.folder,
      options=ocp.CheckpointManagerOptions(
        max_to_keep=keep, create=True, enable_async_checkpointing=True
      ),
      item_names=("state", "meta"),
    )

  def steps(self) -> list[int]:
    """Steps that have a finished checkpoint, oldest first."""
    return sorted(self._manager.all_steps())

  def save(self, step: int, state, config: dict) -> None:
    """Starts saving; the arrays may not be donated while that goes on."""
    meta = {"config": config, "checksum": checksum(state)}
    self._manager.save(
      step,
      args=ocp.args.Composite(
        state=ocp.args.StandardSave(state), meta=ocp.args.JsonSave(meta)
      ),
    )

  def restore(self, abstract, step: int | None = None, report=print):
    """The state of a step, or of the newest sound checkpoint.

    Args:
      abstract: a pytree of shapes and dtypes like the state.
      step: a step; None walks back from the newest, moving damaged
        checkpoints aside.
      report: receives one line for every damaged checkpoint.

    Returns:
      (step, state), or (None, None) if there is no sound checkpoint.

    Raises:
      UsageError: the named step is missing or damaged.
    """
    if step is not None:
      if step not in self.steps():
        raise UsageError(
          f"eval.checkpoint={step}: choose last, best or one of"
          f" {', '.join(map(str, self.steps())) or 'none'}"
        )
      try:
        return step, self._load(step, abstract)
      except Exception as error:
        raise UsageError(
          f"checkpoint {step} in {self.folder} is damaged: {brief(error)}"
        ) from error
    for newest in reversed(self.steps()):
      try:
        return newest, self._load(newest, abstract)
      except Exception as error:  # orbax and tensorstore raise many types
        report(self._move_aside(newest, error))
    return None, None

  def close(self) -> None:
    """Waits for writes in flight."""
    self._manager.wait_until_finished()
    self._manager.close()

  def _load(self, step: int, abstract):
    restored = self._manager.restore(
      step,
      args=ocp.args.Composite(
        state=ocp.args.StandardRestore(abstract), meta=ocp.args.JsonRestore()
      ),
    )
    if checksum(restored.state) != restored.meta["checksum"]:
      raise ValueError(
        "its arrays do not have the checksum they were saved with"
      )
    return restored.state

  def _move_aside(self, step: int, error: Exception) -> str:
    place = self.folder / str(step)
    aside = self.folder.with_name(self.folder.name + "_damaged")
    aside.mkdir(exist_ok=True)
    number = sum(1 for _ in aside.iterdir())
    target = aside / f"{step}.{number}"
    place.rename(target)
    self._manager.reload()
    return (
      f"checkpoint {step} is damaged ({brief(error)}); moved to {target},"
      " using the one before"
    )


def checksum(state) -> str:
  """CRC-32 over all leaves, in tree order."""
  value = 0
  for leaf in jax.tree.leaves(state):
    value = zlib.crc32(np.ascontiguousarray(leaf).tobytes(), value)
  return f"{value:08x}"


def brief(error: Exception) -> str:
  """The first line of an error's message, shortened."""
  lines = str(error).strip().splitlines() or [type(error).__name__]
  return lines[0].partition(". See full")[0][:160]  # orbax adds pages


def saved_config(workdir) -> dict | None:
  """The config a workdir was trained with, None if it has none."""
  path = pathlib.Path(workdir) / "config.json"
  return json.loads(path.read_text()) if path.exists() else None
