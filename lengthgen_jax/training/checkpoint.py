"""This module writes checkpoints in the background and checks them before they
are read.

Orbax writes and reads the arrays. Its CheckpointManager keeps no checksums, so
the steps are managed here. A checkpoint is sound if all its files are there and
have the checksums that were written with them.
"""

import concurrent.futures
import json
import pathlib
import shutil
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import hosts
from lengthgen_jax.errors import check


class Checkpoints:
  """Checkpoints manages those of one run, each in a folder {folder}/{step}.

  The folder of a step has `arrays` (Orbax), `meta.json` (config, seeds, shape
  and dtype of every leaf) and `checksums.json` (of all these files). It is
  written as `.{step}.writing` and renamed when it is complete, so a folder
  named {step} is always complete. If there are several hosts, each writes its
  shards of the arrays, and the first one writes the other files.
  """

  def __init__(
    self, folder: str | pathlib.Path, keep: int, seeds: Iterable[int]
  ):
    """Opens the checkpoints in a folder; nothing is written yet.

    Args:
      folder: the folder of the run's checkpoints.
      keep: how many of the newest checkpoints are kept.
      seeds: the seeds whose states are saved, and the only ones whose
        checkpoints are read.
    """
    self.folder = pathlib.Path(folder).absolute()
    self.keep = keep
    self.seeds = list(map(int, seeds))
    self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1)
    self._write: concurrent.futures.Future | None = None

  def steps(self) -> list[int]:
    """Returns the steps that have a finished checkpoint, oldest first."""
    entries = self.folder.glob("[0-9]*")
    return sorted(int(path.name) for path in entries if path.name.isdigit())

  def save(self, step: int, state: Any, config: dict) -> None:
    """Copies a pytree of jax arrays and begins to write it in the background.

    It first waits until the previous step is written.

    Args:
      step: the step, which becomes the name of the folder.
      state: the arrays, none of them empty.
      config: the config of the run, for meta.json.

    Raises:
      Exception: whatever stopped the write of the previous step.
    """
    self._finish_write()
    # These are copies, because the caller's next step reuses the buffers.
    if hosts.is_multihost():
      arrays = leaves_by_path(jax.tree.map(jnp.copy, state))
    else:
      arrays = {
        name: np.array(x)
        for name, x in leaves_by_path(jax.device_get(state)).items()
      }
    meta = {"config": config, "seeds": self.seeds, "leaves": leaf_types(arrays)}
    self._write = self._thread.submit(
      self._write_step, step, arrays, json.dumps(meta)
    )

  def restore(
    self,
    abstract: Any,
    step: int | None = None,
    report: Callable[[str], None] = print,
    repair: bool = False,
  ) -> tuple[int | None, Any]:
    """Returns (step, state) of the newest sound checkpoint, or of `step`.

    It is (None, None) if no step is named and no checkpoint is sound.

    Args:
      abstract: a pytree of shapes and dtypes (and shardings) like the state.
      step: the step to read, None for the newest sound one.
      report: is called with one line for every damaged checkpoint that is newer
        than the newest sound one; older ones are not looked at.
      repair: whether these are moved to {folder}_damaged, and incomplete ones,
        which a killed run left, are removed.

    Raises:
      UsageError: `step` is missing or damaged, or the checkpoint has other
        seeds or another structure.
      OSError: a file cannot be read.
    """
    # An error of this write is raised by the next save() or by close().
    if self._write is not None:
      concurrent.futures.wait([self._write])
    # The first host repairs; the others wait, and then read what it has left.
    is_primary = hosts.is_primary()
    if repair and not is_primary:
      hosts.barrier("checkpoints")
    sound_step = self._find_sound(step, report, repair and is_primary)
    if repair and is_primary:
      hosts.barrier("checkpoints")
    if sound_step is None:
      return None, None
    return sound_step, self._load(sound_step, abstract)

  def _find_sound(
    self, step: int | None, report: Callable[[str], None], repair: bool
  ) -> int | None:
    """Returns `step` if it is sound, or the newest sound step if it is None;
    None if there is no sound step. Arguments and errors as in `restore`."""
    if repair:
      self._remove_leftovers()
    steps = self.steps()
    choices = (
      f"choose last, best or one of {', '.join(map(str, steps)) or 'none'}"
    )
    check(step in [None, *steps], f"eval.checkpoint={step}: {choices}")
    for candidate in reversed(steps) if step is None else [step]:
      damage = find_damage(self.folder / str(candidate))
      if not damage:
        return candidate
      message = f"checkpoint {candidate} in {self.folder} is damaged ({damage})"
      check(step is None, f"eval.checkpoint={step}: {message}; {choices}")
      if repair:
        message += f"; moved to {self._move_aside(candidate)}"
      consequence = (
        "using the one before" if candidate > steps[0] else "none is left"
      )
      report(f"{message}; {consequence}")
    return None

  def close(self) -> None:
    """Waits for the write in the background, and raises its error."""
    self._thread.shutdown()
    self._finish_write()

  def _finish_write(self) -> None:
    """Waits for the write in the background, and raises its error once."""
    write, self._write = self._write, None
    if write is not None:
      write.result()

  def _write_step(self, step: int, arrays: dict, meta: str) -> None:
    """Writes a step to a hidden folder, and renames it when it is complete."""
    folder = self.folder / f".{step}.writing"
    if hosts.is_primary():
      self._remove_leftovers()
      folder.mkdir(parents=True)
    import orbax.checkpoint as ocp  # slow, and most commands need none of it

    # With the processes named, Orbax makes them wait for each other without a
    # computation on the devices, which would interfere with training.
    processes = (
      set(range(jax.process_count())) if hosts.is_multihost() else None
    )
    options = ocp.options.MultiprocessingOptions(active_processes=processes)
    with ocp.StandardCheckpointer(
      multiprocessing_options=options
    ) as checkpointer:
      checkpointer.save(folder / "arrays", arrays)
      checkpointer.wait_until_finished()  # raises what went wrong
    if hosts.is_primary():
      self._publish(step, folder, meta)

  def _publish(self, step: int, folder: pathlib.Path, meta: str) -> None:
    """Adds meta.json and checksums.json to a step, renames its folder (which
    takes the place of another checkpoint of this step), and removes the oldest
    steps."""
    (folder / "meta.json").write_text(meta, encoding="utf-8")
    checksums = {
      name: checksum(path) for name, path in files_in(folder).items()
    }
    (folder / "checksums.json").write_text(
      json.dumps(checksums), encoding="utf-8"
    )
    if step in self.steps():
      self._remove(step)
    folder.rename(self.folder / str(step))
    for old_step in self.steps()[: -self.keep]:
      self._remove(old_step)

  def _remove(self, step: int) -> None:
    """Removes a step; it is renamed first, so that an interrupted removal does
    not leave a damaged checkpoint."""
    removed = self.folder / f".{step}.removed"
    shutil.rmtree((self.folder / str(step)).rename(removed))

  def _remove_leftovers(self) -> None:
    """Removes steps whose writing or removal was interrupted."""
    half_written = self.folder.glob(".[0-9]*.writing")
    half_removed = self.folder.glob(".[0-9]*.removed")
    for folder in [*half_written, *half_removed]:
      shutil.rmtree(folder)

  def _load(self, step: int, abstract: Any) -> Any:
    """Returns the state of a sound step, a pytree like `abstract`."""
    folder = self.folder / str(step)
    leaves = leaves_by_path(abstract)
    saved = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    seeds = saved["seeds"]
    check(
      seeds == self.seeds,
      f"checkpoint {step} in {self.folder} is of seeds {seeds} and not of"
      f" {self.seeds}",
    )
    changes = leaf_differences(leaf_types(leaves), saved["leaves"])
    words = "; ".join(changes[:5]) + ("; ..." if len(changes) > 5 else "")
    check(
      not changes,
      f"checkpoint {step} in {self.folder} has another structure: {words}",
    )
    import orbax.checkpoint as ocp

    # Leaves without a sharding are read as numpy arrays. Of the others each
    # host reads its shards, whichever host wrote them.
    target = {
      name: leaf if sharding(leaf) else np.empty(leaf.shape, leaf.dtype)
      for name, leaf in leaves.items()
    }
    with ocp.StandardCheckpointer() as checkpointer:
      arrays = checkpointer.restore(folder / "arrays", target)
    state = [
      arrays[name] if sharding(leaf) else jax.device_put(arrays[name])
      for name, leaf in leaves.items()
    ]
    return jax.tree.unflatten(jax.tree.structure(abstract), state)

  def _move_aside(self, step: int) -> pathlib.Path:
    """Moves a step to {folder}_damaged, under a new name."""
    aside = self.folder.with_name(self.folder.name + "_damaged")
    aside.mkdir(exist_ok=True)
    number = 0
    while (target := aside / f"{step}.{number}").exists():
      number += 1
    return (self.folder / str(step)).rename(target)


def sharding(leaf: Any) -> jax.sharding.Sharding | None:
  """Returns the sharding of an abstract leaf, None if it does not have one."""
  return getattr(leaf, "sharding", None)


def leaves_by_path(tree: Any) -> dict[str, Any]:
  """Returns the leaves of a pytree by path, like "params/dense/kernel", in tree
  order."""
  name = lambda path: jax.tree_util.keystr(path, simple=True, separator="/")
  return {name(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def leaf_types(leaves: dict[str, Any]) -> dict[str, list]:
  """Returns [shape, dtype] of every leaf, as JSON values."""
  return {name: [list(x.shape), str(x.dtype)] for name, x in leaves.items()}


def leaf_differences(expected: dict, saved: dict) -> list[str]:
  """Returns in words how the leaves of a checkpoint differ from expected ones.

  Args:
    expected: {path: [shape, dtype]} of the leaves of a state.
    saved: the same of the leaves in the checkpoint.

  Returns:
    Lines like "params/dense/kernel is missing".
  """
  lines = [f"{name} is missing" for name in expected if name not in saved]
  lines += [f"{name} is unexpected" for name in saved if name not in expected]
  for name, (shape, dtype) in saved.items():
    if expected.get(name, [shape, dtype]) != [shape, dtype]:
      expected_shape, expected_dtype = expected[name]
      lines.append(
        f"{name} is {dtype}{shape} and not {expected_dtype}{expected_shape}"
      )
  return lines


def files_in(folder: pathlib.Path) -> dict[str, pathlib.Path]:
  """Returns all files in a folder and its subfolders, by relative path."""
  return {
    path.relative_to(folder).as_posix(): path
    for path in sorted(folder.rglob("*"))
    if path.is_file()
  }


def checksum(path: pathlib.Path) -> list[int]:
  """Returns [size in bytes, CRC-32] of a file."""
  data = path.read_bytes()
  return [len(data), zlib.crc32(data)]


def find_damage(folder: pathlib.Path) -> str:
  """Returns in words which file of a checkpoint is missing or changed.

  It is "" for a sound checkpoint. An OSError of reading is raised.
  """
  paths = files_in(folder)
  try:
    checksums = dict(json.loads(paths["checksums.json"].read_bytes()))
  except KeyError:
    return "checksums.json is missing"
  except (ValueError, TypeError):  # no JSON, no UTF-8, no dict
    return "checksums.json is not as it was written"
  for name, expected in checksums.items():
    if name not in paths:
      return f"{name} is missing"
    if checksum(paths[name]) != expected:
      return f"{name} is not as it was written"
  return ""
