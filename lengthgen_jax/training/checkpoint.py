"""Saves the states of a run, and restores them, by Orbax."""

import pathlib
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from lengthgen_jax import hosts
from lengthgen_jax.errors import UsageError, check


class Checkpoints:
  """The newest states of one run, each in {folder}/{step}.

  Orbax writes a step in the background, under another name until it is
  complete. Of several hosts each writes its shards.
  """

  def __init__(
    self,
    folder: str | pathlib.Path,
    keep: int,
    seeds: Iterable[int],
    writes: bool = False,
  ):
    """Opens the checkpoints in a folder, of which `keep` are kept and only
    those of `seeds` are read.

    Unless `writes`, nothing on disk is changed; else the folder is made, and
    what a killed run left half written is removed from it.
    """
    import orbax.checkpoint as ocp  # slow, and most commands need none of it

    self.folder = pathlib.Path(folder).absolute()
    self.seeds = list(map(int, seeds))
    self._args = ocp.args
    self._manager = ocp.CheckpointManager(
      self.folder,
      options=ocp.CheckpointManagerOptions(
        preservation_policy=ocp.checkpoint_managers.LatestN(keep),
        create=writes,
        cleanup_tmp_directories=writes,
        save_root_metadata=False,
      ),
      item_handlers=ocp.StandardCheckpointHandler(),
    )

  def steps(self) -> list[int]:
    """Returns the steps that have a checkpoint, oldest first."""
    return sorted(self._manager.all_steps())

  def save(self, step: int, state: Any) -> None:
    """Begins to write a pytree of arrays, none of them empty, once the step
    before is written; what stopped that write is raised here or by close().

    Checkpoints of this step and later ones are removed first: they could not be
    restored, or another seed was behind when they were written.
    """
    self._manager.wait_until_finished()
    for later_step in self.steps():
      if later_step >= step:
        self._manager.delete(later_step)
    self._manager.save(
      step,
      args=self._args.StandardSave(leaves_by_path(state)),
      custom_metadata={"seeds": self.seeds},
      force=True,  # at whatever step
    )

  def restore(
    self, abstract: Any, step: int | None = None
  ) -> tuple[int | None, Any]:
    """Returns (step, state) of the newest checkpoint that can be restored, or
    of `step`; (None, None) if there is no checkpoint.

    `abstract` is a pytree of shapes and dtypes (and shardings) like the state.
    A note is printed for each checkpoint that is passed over. A UsageError says
    that `step` is missing, that it or every checkpoint cannot be restored, or
    that one has other seeds or another structure.
    """
    steps, failure = self.steps(), ""
    choices = f"choose last, best or one of {', '.join(map(str, steps))}"
    check(step in [None, *steps], f"eval.checkpoint={step}: {choices}")
    for candidate in reversed(steps) if step is None else [step]:
      if failure:
        hosts.print_note(f"{failure}; using the one before")
      where = f"checkpoint {candidate} in {self.folder}"
      try:
        return candidate, self._restore(candidate, abstract, where)
      except (UsageError, MemoryError):
        raise
      except Exception as error:  # Orbax has no class of its own for these
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        failure = f"{where} cannot be restored ({reason[:200]})"
    if failure and step is None:
      self._manager.reload()
      if self.steps() != steps:  # a process that trains has replaced them
        return self.restore(abstract)
    advice = "remove the folder to train anew" if step is None else choices
    check(failure == "", f"{failure}; {advice}")
    return None, None

  def _restore(self, step: int, abstract: Any, where: str) -> Any:
    metadata, leaves = self._manager.metadata(step), leaves_by_path(abstract)
    seeds = metadata.custom_metadata["seeds"]
    check(
      seeds == self.seeds, f"{where} is of seeds {seeds} and not {self.seeds}"
    )
    changes = differences(metadata.item_metadata, leaves)
    check(not changes, f"{where} is of another structure: it {changes}")
    # Leaves without a sharding are read as numpy arrays. Of the others each
    # host reads its shards, whichever host wrote them.
    target = {
      name: leaf if leaf.sharding else np.empty(leaf.shape, leaf.dtype)
      for name, leaf in leaves.items()
    }
    args = self._args.StandardRestore(target)
    arrays = self._manager.restore(step, args=args)
    state = [
      arrays[name] if leaf.sharding else jax.device_put(arrays[name])
      for name, leaf in leaves.items()
    ]
    return jax.tree.unflatten(jax.tree.structure(abstract), state)

  def close(self) -> None:
    """Waits for the write in the background, and raises its error."""
    self._manager.close()


def leaves_by_path(tree: Any) -> dict[str, Any]:
  """Returns the leaves of a pytree by path, like "params/dense/kernel", in tree
  order."""
  name = lambda path: jax.tree_util.keystr(path, simple=True, separator="/")
  return {name(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def differences(found: Any, expected: Any) -> str:
  """Returns which leaves, by path, differ in path, type or shape, in words like
  "has scale float32[3]; lacks scale float32[4]"; "" if none does."""
  found, expected = (
    {f"{name} {x.dtype}{list(x.shape)}" for name, x in leaves.items()}
    for leaves in (found, expected)
  )
  changes = [f"has {leaf}" for leaf in sorted(found - expected)]
  changes += [f"lacks {leaf}" for leaf in sorted(expected - found)]
  return "; ".join(changes[:5]) + ("; ..." if len(changes) > 5 else "")
