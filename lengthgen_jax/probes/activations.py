"""What a model shows inside on a batch, by name and in its own two bases.

Encoder basis: the rows of the token embedding; decoder basis: the columns of
the main head's output layer (task hinting paper, section 4.2). A projection is
a plain inner product with the residual stream, as in that paper: neither the
last normalization nor the output layer's own bias is in it.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from lengthgen_jax.errors import check

PLACES = ("before_mlp", "after_mlp")  # of a block's residual stream


class Mean(NamedTuple):
  """Part of a mean that a probe measures: passes over inputs add up.

  Attributes:
    total: sum over what was counted.
    count: how many were.
    part: where in a layer: an attention site, or a place in the residual
      stream.
    layer, head: of the decoder ("encoder" counts its own), None: all or none.
    line: of a bias, in words.
    position: row that was changed.
    by_position: sums for every output token, [T], of `samples` each.
    samples: inputs among the count.
    success: whether each counted one is right or wrong, so that the mean is a
      rate of success.
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
    return self.part, self.layer, self.head, self.line, self.position

  def __add__(self, other: "Mean") -> "Mean":
    both = self.by_position
    return self._replace(
      total=self.total + other.total,
      count=self.count + other.count,
      by_position=None if both is None else both + other.by_position,
    )

  @property
  def value(self) -> float:
    return float(self.total / self.count)


@dataclasses.dataclass(frozen=True, eq=False)
class Seen:
  """A model on a batch of its main task: all that a probe is given.

  Attributes:
    model: a trained.Model, or whatever has its experiment, scaffold, params,
      open_heads and observe.
    batch: a Batch.
    count: examples that count; others fill the batch.
    length: units of every operand or list.
    lines: makes {site: (Candidates, Verdict)} of what the model attends to,
      for the probe that asks.
  """

  model: object
  batch: object
  count: int
  length: int
  lines: Callable = dict

  @property
  def experiment(self):
    return self.model.experiment

  @property
  def task(self):
    return self.model.experiment.task

  @functools.cached_property
  def _observed(self):
    return jax.device_get(self.model.observe(self.batch))

  @property
  def logits(self):
    """[B, T, V] of the main task's head, teacher-forced."""
    return self._observed[0]

  @property
  def acts(self) -> dict:
    """All activations, host-side; see models."""
    return self._observed[1]

  @functools.cached_property
  def at(self):
    """The batch, host-side."""
    return jax.device_get(self.batch)

  @property
  def layers(self) -> int:
    return len(self.acts["decoder"]["blocks"])

  def residual(self, layer: int, place: str):
    """[count, T, D] float32, the decoder's residual stream at one of PLACES."""
    found = activation(self.acts, f"decoder.blocks.{layer}.{place}")
    return np.asarray(found[: self.count], np.float32)

  def attention(self):
    """(site, layer, weights [count, H, T, S]) of the decoder's rows."""
    for n, block in enumerate(self.acts["decoder"]["blocks"]):
      for site in ("self", "cross"):
        if site in block:
          yield site, n, np.asarray(block[site]["weights"])[: self.count]

  @functools.cached_property
  def bases(self) -> dict:
    """{"encoder": ..., "decoder": ...}, [V, D] float32 each."""
    return bases(self.model.params, self.task.name)

  def project(self, x, basis: str):
    """Inner products [..., V] of vectors [..., D] with a basis."""
    return x @ self.bases[basis].T


def bases(params, head: str) -> dict:
  """Vectors of every token: rows of the embedding, and columns of a head's
  output layer; [V, D] float32."""
  as_rows = {
    "encoder": params["token_embedder"]["embedding"],
    "decoder": params[f"logits_dense_{head}"]["kernel"].T,
  }
  return {name: np.asarray(own, np.float32) for name, own in as_rows.items()}


def angles(first, second):
  """Cosines [V, W] between the vectors of two bases."""
  unit = lambda x: x / np.maximum(np.linalg.norm(x, axis=1), 1e-9)[:, None]
  return unit(first) @ unit(second).T


def names(acts) -> list[str]:
  """Every activation there is, like "decoder.blocks.0.self.weights"."""
  name = lambda path: ".".join(
    str(getattr(p, "key", None) or p.idx) for p in path
  )
  return [name(path) for path, _ in jax.tree_util.tree_leaves_with_path(acts)]


def activation(acts, name: str):
  """The activation of a name; UsageError with all names if there is none."""
  found = acts
  try:
    for part in name.split("."):
      found = found[int(part) if isinstance(found, list) else part]
    there = not isinstance(found, dict | list)
  except (KeyError, ValueError, IndexError):
    there = False
  check(
    there,
    f"no activation {name!r} in this model: choose one of"
    f" {', '.join(names(acts))}",
  )
  return found


def tokens(task, vocab_size: int) -> list[int]:
  """Ids that inputs and outputs hold: all but PAD."""
  return [token for token in range(vocab_size) if token != task.pad]
