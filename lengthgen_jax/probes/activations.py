"""A model observed on a batch: activations, and projections on its two bases.

The encoder basis is the rows of the token embedding, the decoder basis is the
columns of the main head's output layer (task hinting paper, section 4.2). A
projection is a plain inner product with the residual stream, as in that paper:
neither the last normalization nor the bias of the output layer is in it.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Protocol

import jax
import numpy as np

from lengthgen_jax.attention.biases.scaffold import SparsePlan
from lengthgen_jax.coordinates import Coordinates
from lengthgen_jax.errors import check
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.tasks.task import Task

# Activations of a block that are its residual stream.
RESIDUALS = ("before_mlp", "after_mlp")


class TrainedModel(Protocol):
  """What probes ask of a model; evaluation.trained.Model has it.

  Attributes:
    experiment: the experiment that the model was trained in.
    scaffold: lines or matrices by attention site.
    params: parameters of the flax module.
    sparse_plan: the plan for attention along lines, None where it is dense.
  """

  @property
  def experiment(self) -> Experiment: ...
  @property
  def scaffold(self) -> dict: ...
  @property
  def params(self) -> dict: ...
  @property
  def sparse_plan(self) -> SparsePlan | None: ...

  def observe(self, batch: Batch) -> tuple[jax.Array, dict]:
    """Returns teacher-forced logits [B, T, V] and activations."""
    ...


@dataclasses.dataclass(frozen=True)
class Mean:
  """A mean that a probe measures, kept as a sum so that batches can be added.

  Attributes:
    total: sum over what was counted.
    count: how many values the sum is of.
    part: an attention site, or an activation such as those of RESIDUALS.
    layer, head: of the decoder (for part "encoder" of the encoder); None for
      all or none.
    line: a line of the bias, in words.
    position: the row that was patched.
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
  def location(self) -> tuple:
    """Everything that says which part of the model the mean is of."""
    return self.part, self.layer, self.head, self.line, self.position

  def __add__(self, other: "Mean") -> "Mean":
    """Returns the mean over the inputs of both, which are of one location."""
    by_position = self.by_position
    if by_position is not None and other.by_position is not None:
      by_position = by_position + other.by_position
    return dataclasses.replace(
      self,
      total=self.total + other.total,
      count=self.count + other.count,
      by_position=by_position,
    )

  @property
  def value(self) -> float:
    """The mean itself."""
    return float(self.total / self.count)


@dataclasses.dataclass(frozen=True, eq=False)
class Observation:
  """A model on a batch of its main task, which is all that a probe is given.

  Attributes:
    model: the model.
    batch: examples of the main task, on the host.
    count: how many examples count, the first ones; the others fill the batch.
    length: units of every operand or list.
    scored_lines: a function that returns {site: (Lines, Selection)} of all
      lines in the model's attention; only probes of lines call it. The default
      returns {}.
  """

  model: TrainedModel
  batch: Batch
  count: int
  length: int
  scored_lines: Callable[[], dict] = dict

  @property
  def experiment(self) -> Experiment:
    """The experiment that the model was trained in."""
    return self.model.experiment

  @property
  def task(self) -> Task:
    """The main task."""
    return self.model.experiment.task

  @functools.cached_property
  def _outputs(self) -> tuple[np.ndarray, dict]:
    """Logits and activations of one teacher-forced pass, on the host."""
    return jax.device_get(self.model.observe(self.batch))

  @property
  def logits(self) -> np.ndarray:
    """Logits [B, T, V] of the main task's head, under teacher forcing."""
    return self._outputs[0]

  @property
  def acts(self) -> dict:
    """All activations by stack and block, on the host; see models."""
    return self._outputs[1]

  def keys(self, site: str) -> Coordinates:
    """Returns the coordinates of an attention site's keys."""
    if site == "self":
      return self.batch.keys
    assert self.batch.source_keys is not None
    return self.batch.source_keys

  @property
  def num_layers(self) -> int:
    """The number of the decoder's blocks."""
    return len(self.acts["decoder"]["blocks"])

  def residual(self, layer: int, name: str) -> np.ndarray:
    """Returns the residual stream [count, T, D] float32 of a decoder's block,
    at one of RESIDUALS."""
    residual_BxTxD = self.acts["decoder"]["blocks"][layer][name]
    return np.asarray(residual_BxTxD[: self.count], np.float32)

  def residuals(self) -> Iterator[tuple[int, str, np.ndarray]]:
    """Yields (layer, name, residual stream) from the first layer up."""
    for layer in range(self.num_layers):
      for name in RESIDUALS:
        yield layer, name, self.residual(layer, name)

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
    params = self.model.params
    vectors_by_basis = {
      "encoder": params["token_embedder"]["embedding"],
      "decoder": params[f"logits_dense_{self.task.name}"]["kernel"].T,
    }
    return {
      basis: np.asarray(vectors, np.float32)
      for basis, vectors in vectors_by_basis.items()
    }

  def project(self, x: np.ndarray, basis: str) -> np.ndarray:
    """Returns inner products [..., V] of vectors [..., D] with a basis."""
    return x @ self.bases[basis].T


def activation_names(acts: dict) -> list[str]:
  """Returns names like "decoder.blocks.0.self.weights" of all activations."""
  dotted = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")
  return [dotted(path) for path, _ in jax.tree_util.tree_leaves_with_path(acts)]


def activation(acts: dict, name: str) -> jax.Array | np.ndarray:
  """Returns the activation of a name like "decoder.blocks.0.self.weights".

  Raises:
    UsageError: there is none of this name; the message lists all names.
  """
  names = activation_names(acts)
  check(
    name in names,
    f"no activation {name!r} in this model: choose one of {', '.join(names)}",
  )
  return jax.tree.leaves(acts)[names.index(name)]
