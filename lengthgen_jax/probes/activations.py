"""Activations of a model on a batch, and their projections on its two bases.

The encoder basis is the rows of the token embedding, the decoder basis is the
columns of the main head's output layer (task hinting paper, section 4.2). A
projection is a plain inner product with the residual stream, as in that paper:
neither the last normalization nor the bias of the output layer is in it.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from lengthgen_jax.errors import check
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.tasks.task import Task

PLACES = ("before_mlp", "after_mlp")  # in a block, where the stream is read


class Mean(NamedTuple):
  """A mean that a probe measures, kept as a sum so that passes can be added.

  Attributes:
    total: sum over what was counted.
    count: how many values the sum is of.
    part: where in a layer: an attention site, or a place in the residual
      stream.
    layer, head: of the decoder (for part "encoder" of the encoder); None for
      all or none.
    line: a line of the bias, in words.
    position: the row that was changed.
    by_position: sums for every output token, [T], over `count` inputs.
    success: whether each counted value is right (1) or wrong (0), so that the
      mean is a rate of success.
  """

  total: float
  count: int
  part: str | None = None
  layer: int | None = None
  head: int | None = None
  line: str | None = None
  position: int | None = None
  by_position: np.ndarray | None = None
  success: bool = False

  @property
  def where(self) -> tuple:
    """Everything that says of what part of the model the mean is."""
    return self.part, self.layer, self.head, self.line, self.position

  def __add__(self, other: "Mean") -> "Mean":
    """Returns the mean over the inputs of both, which are of one place."""
    by_position = self.by_position
    return self._replace(
      total=self.total + other.total,
      count=self.count + other.count,
      by_position=None
      if by_position is None
      else by_position + other.by_position,
    )

  @property
  def value(self) -> float:
    """The mean itself."""
    return float(self.total / self.count)


@dataclasses.dataclass(frozen=True, eq=False)
class Seen:
  """A model on a batch of its main task, which is all that a probe is given.

  Attributes:
    model: a trained.Model, or anything that has its experiment, scaffold,
      params, sparse_plan and observe.
    batch: examples of the main task.
    count: how many examples count, the first ones; the others fill the batch.
    length: units of every operand or list.
    lines: a function that returns {site: (Lines, Selection)} of the lines
      that the model attends to; only probes of lines call it.
  """

  model: Any
  batch: Batch
  count: int
  length: int
  lines: Callable[[], dict] = dict

  @property
  def experiment(self) -> Experiment:
    """The experiment that the model was trained in."""
    return self.model.experiment

  @property
  def task(self) -> Task:
    """The main task."""
    return self.model.experiment.task

  @functools.cached_property
  def _observed(self) -> tuple[np.ndarray, dict]:
    """Logits and activations of one teacher-forced pass, host-side."""
    return jax.device_get(self.model.observe(self.batch))

  @property
  def logits(self) -> np.ndarray:
    """Logits [B, T, V] of the main task's head, under teacher forcing."""
    return self._observed[0]

  @property
  def acts(self) -> dict:
    """All activations by stack and block, host-side; see models."""
    return self._observed[1]

  @functools.cached_property
  def at(self) -> Batch:
    """The batch, copied to the host."""
    return jax.device_get(self.batch)

  @property
  def layers(self) -> int:
    """The number of the decoder's blocks."""
    return len(self.acts["decoder"]["blocks"])

  def residual(self, layer: int, place: str) -> np.ndarray:
    """Returns the decoder's residual stream at one of PLACES.

    Args:
      layer: number of the decoder's block.
      place: one of PLACES.

    Returns:
      Residuals [count, T, D] float32.
    """
    residual_BxTxD = activation(self.acts, f"decoder.blocks.{layer}.{place}")
    return np.asarray(residual_BxTxD[: self.count], np.float32)

  def attention(self) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yields the softmax weights of the decoder's rows, by site and layer.

    Yields:
      (site, layer, weights [count, H, T, S]).
    """
    for layer, block in enumerate(self.acts["decoder"]["blocks"]):
      for site in ("self", "cross"):
        if site in block:
          yield site, layer, np.asarray(block[site]["weights"])[: self.count]

  @functools.cached_property
  def bases(self) -> dict[str, np.ndarray]:
    """The bases "encoder" and "decoder", [V, D] float32 each."""
    return bases(self.model.params, self.task.name)

  def project(self, x: np.ndarray, basis: str) -> np.ndarray:
    """Returns inner products [..., V] of vectors [..., D] with a basis."""
    return x @ self.bases[basis].T


def bases(params: dict, head: str) -> dict[str, np.ndarray]:
  """Returns the vectors of every token in both bases, [V, D] float32 each.

  Args:
    params: of the model.
    head: whose output layer's columns are the decoder basis; the rows of the
      embedding are the encoder basis.
  """
  by_basis = {
    "encoder": params["token_embedder"]["embedding"],
    "decoder": params[f"logits_dense_{head}"]["kernel"].T,
  }
  return {
    name: np.asarray(vectors, np.float32) for name, vectors in by_basis.items()
  }


def angles(first: np.ndarray, second: np.ndarray) -> np.ndarray:
  """Returns the cosines [V, W] between the vectors of two bases."""
  unit = lambda x: x / np.maximum(np.linalg.norm(x, axis=1), 1e-9)[:, None]
  return unit(first) @ unit(second).T


def names(acts: dict) -> list[str]:
  """Returns names like "decoder.blocks.0.self.weights" of all activations."""
  dotted = lambda path: ".".join(
    str(getattr(p, "key", None) or p.idx) for p in path
  )
  return [dotted(path) for path, _ in jax.tree_util.tree_leaves_with_path(acts)]


def activation(acts: dict, name: str) -> jax.Array | np.ndarray:
  """Returns the activation of a name like "decoder.blocks.0.self.weights".

  Raises:
    UsageError: there is none of this name; the message lists all names.
  """
  node = acts
  try:
    for key in name.split("."):
      node = node[int(key) if isinstance(node, list) else key]
    is_leaf = not isinstance(node, dict | list)
  except (KeyError, ValueError, IndexError):
    is_leaf = False
  check(
    is_leaf,
    f"no activation {name!r} in this model: choose one of"
    f" {', '.join(names(acts))}",
  )
  return node


def tokens(task: Task, vocab_size: int) -> list[int]:
  """Returns the ids that inputs and outputs may hold, which are all but PAD."""
  return [token for token in range(vocab_size) if token != task.pad]
