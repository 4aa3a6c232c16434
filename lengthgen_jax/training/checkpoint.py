"""Checkpoints: written in the background, checked file by file when read."""

import concurrent.futures
import json
import pathlib
import shutil
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from lengthgen_jax import hosts
from lengthgen_jax.errors import check


class Checkpoints:
  """The checkpoints of one run: folder/{step}, the newest `keep` of them.

  A step holds `arrays` (Orbax), `meta.json` (config, seeds, shape and dtype of
  every leaf) and `checksums.json` (of all these files). It is written as
  `.{step}.writing` and renamed when whole: a step that shows is whole. Of
  several hosts each writes its shards of the arrays, the first one the rest.
  """

  def __init__(self, folder, keep: int = 2, seeds=()):
    self.folder = pathlib.Path(folder).absolute()
    self.keep = keep
    self.seeds = list(map(int, seeds))  # whose states these are
    self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1)
    self._writes = []  # one in flight, or none

  def steps(self) -> list[int]:
    """Steps that have a finished checkpoint, oldest first."""
    places = self.folder.glob("[0-9]*")
    return sorted(int(path.name) for path in places if path.name.isdigit())

  def save(self, step: int, state, config: dict) -> None:
    """Copies a pytree of jax arrays (none empty) and returns; they are written
    in the background. Raises what stopped the write before."""
    self._finish_write()
    # Copies: the caller's next step reuses the buffers.
    if hosts.several():
      arrays = named(jax.tree.map(jnp.copy, state))
    else:
      arrays = {k: np.array(x) for k, x in named(jax.device_get(state)).items()}
    meta = {"config": config, "seeds": self.seeds, "leaves": forms(arrays)}
    meta = json.dumps(meta)
    self._writes.append(self._thread.submit(self._write, step, arrays, meta))

  def restore(self, abstract, step=None, report=print, repair=False):
    """(step, state) of the newest sound checkpoint, (None, None) without one.

    Args:
      abstract: a pytree of shapes and dtypes (and shardings) like the state.
      step: this step and no other.
      report: receives one line for every damaged checkpoint passed over.
      repair: for training: moves those to {folder}_damaged, and removes what
        a killed run left half written.

    Raises:
      UsageError: a named step is missing or damaged, or seeds or structure
        differ.
    """
    # An error of theirs is for save() or close() to raise.
    concurrent.futures.wait(self._writes)
    mends = repair and hosts.first()
    if repair and not mends:
      hosts.meet("checkpoints")  # the first host has moved what is damaged
    newest = self._sound(step, report, mends)
    if mends:
      hosts.meet("checkpoints")
    return newest, None if newest is None else self._load(newest, abstract)

  def _sound(self, step, report, repair: bool) -> int | None:
    """The newest step (or the given one) whose files are sound."""
    if repair:
      self._remove_leftovers()
    steps = self.steps()
    choices = (
      f"choose last, best or one of {', '.join(map(str, steps)) or 'none'}"
    )
    check(step in [None, *steps], f"eval.checkpoint={step}: {choices}")
    for newest in reversed(steps) if step is None else [step]:
      reason = damage(self.folder / str(newest))
      if not reason:
        return newest
      line = f"checkpoint {newest} in {self.folder} is damaged ({reason})"
      check(step is None, f"eval.checkpoint={step}: {line}; {choices}")
      if repair:
        line += f"; moved to {self._move_aside(newest)}"
      before = "using the one before" if newest > steps[0] else "none is left"
      report(f"{line}; {before}")
    return None

  def close(self) -> None:
    """Waits for writes in flight and raises their error."""
    self._thread.shutdown()
    self._finish_write()

  def _finish_write(self) -> None:
    while self._writes:
      self._writes.pop().result()

  def _write(self, step: int, arrays: dict, meta: str) -> None:
    place = self.folder / f".{step}.writing"
    if hosts.first():
      self._remove_leftovers()
      place.mkdir(parents=True)
    # By name, the processes wait for each other beside the devices' work.
    processes = set(range(jax.process_count())) if hosts.several() else None
    together = ocp.options.MultiprocessingOptions(active_processes=processes)
    with ocp.StandardCheckpointer(
      multiprocessing_options=together
    ) as checkpointer:
      checkpointer.save(place / "arrays", arrays)
      checkpointer.wait_until_finished()  # raises what went wrong
    if hosts.first():
      self._publish(step, place, meta)

  def _publish(self, step: int, place: pathlib.Path, meta: str) -> None:
    """Makes a step of what all hosts have written; removes the oldest."""
    (place / "meta.json").write_text(meta)
    sums = {name: checksum(path) for name, path in files(place).items()}
    (place / "checksums.json").write_text(json.dumps(sums))
    if step in self.steps():
      self._remove(step)
    place.rename(self.folder / str(step))
    for old in self.steps()[: -self.keep]:
      self._remove(old)

  def _remove(self, step: int) -> None:
    """Renames first: a removal that is cut off leaves no damaged step."""
    removed = self.folder / f".{step}.removed"
    shutil.rmtree((self.folder / str(step)).rename(removed))

  def _remove_leftovers(self) -> None:
    half = self.folder.glob(".[0-9]*.writing")
    for place in [*half, *self.folder.glob(".[0-9]*.removed")]:
      shutil.rmtree(place)

  def _load(self, step: int, abstract):
    """The state of a step whose files are sound."""
    place = self.folder / str(step)
    leaves = named(abstract)
    saved = json.loads((place / "meta.json").read_text())
    seeds = saved.get("seeds", self.seeds)
    check(
      seeds == self.seeds or not self.seeds,
      f"checkpoint {step} in {self.folder} is of seeds {seeds} and not of"
      f" {self.seeds}",
    )
    wrong = differences(forms(leaves), saved["leaves"])
    names = "; ".join(wrong[:5]) + ("; ..." if len(wrong) > 5 else "")
    check(
      not wrong,
      f"checkpoint {step} in {self.folder} has another structure: {names}",
    )
    # As numbers, or each host its shards, whoever wrote them.
    target = {
      name: leaf if sharding(leaf) else np.empty(leaf.shape, leaf.dtype)
      for name, leaf in leaves.items()
    }
    with ocp.StandardCheckpointer() as checkpointer:
      arrays = checkpointer.restore(place / "arrays", target)
    state = [
      arrays[name] if sharding(leaf) else jax.device_put(arrays[name])
      for name, leaf in leaves.items()
    ]
    return jax.tree.unflatten(jax.tree.structure(abstract), state)

  def _move_aside(self, step: int) -> pathlib.Path:
    aside = self.folder.with_name(self.folder.name + "_damaged")
    aside.mkdir(exist_ok=True)
    number = 0
    while (target := aside / f"{step}.{number}").exists():
      number += 1
    return (self.folder / str(step)).rename(target)


def sharding(leaf):
  """Where an abstract leaf is to be, None if it does not say."""
  return getattr(leaf, "sharding", None)


def named(tree) -> dict:
  """The leaves by path, as in "params/dense/kernel", in tree order."""
  name = lambda path: jax.tree_util.keystr(path, simple=True, separator="/")
  return {name(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def forms(leaves: dict) -> dict:
  """[shape, dtype] of every leaf, as JSON values."""
  return {name: [list(x.shape), str(x.dtype)] for name, x in leaves.items()}


def differences(wanted: dict, saved: dict) -> list[str]:
  """A few words on every leaf that differs between two results of `forms`."""
  changed = "{0} is {2}{1} and not {4}{3}".format
  return [
    *(f"{name} is missing" for name in wanted if name not in saved),
    *(f"{name} is unexpected" for name in saved if name not in wanted),
    *(
      changed(name, *saved[name], *wanted[name])
      for name in wanted
      if saved.get(name, wanted[name]) != wanted[name]
    ),
  ]


def files(place: pathlib.Path) -> dict:
  """All files below a folder, by their path relative to it."""
  return {
    path.relative_to(place).as_posix(): path
    for path in sorted(place.rglob("*"))
    if path.is_file()
  }


def checksum(path: pathlib.Path) -> list[int]:
  """[size in bytes, CRC-32] of a file."""
  data = path.read_bytes()
  return [len(data), zlib.crc32(data)]


def damage(place: pathlib.Path) -> str:
  """Which file is missing or changed, "" if none; reading errors go through."""
  found = files(place)
  try:
    sums = dict(json.loads(found["checksums.json"].read_bytes()))
  except KeyError:
    return "checksums.json is missing"
  except (ValueError, TypeError):  # no JSON, no UTF-8, no dict
    return "checksums.json is not as it was written"
  for name, wanted in sums.items():
    if name not in found:
      return f"{name} is missing"
    if checksum(found[name]) != wanted:
      return f"{name} is not as it was written"
  return ""
