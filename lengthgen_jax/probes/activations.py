"""Observes a model on a batch: its activations, and their projections on two
bases.

The encoder basis is the rows of the token embedding, the decoder basis is the
columns of the kernel of the main task's output head (task hinting paper,
section 4.2). A projection is a plain inner product with the residual stream, as
in that paper: neither the final layer normalization nor the bias of the output
head is in it.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import rng
from lengthgen_jax.coordinates import Coordinates
from lengthgen_jax.evaluation.trained import Model, attention_bytes
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models.transformer import blocks
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.tasks.task import Task

ATTENTION_BYTES = 256 << 20  # most, of the scores and weights of a batch
# The activations of a block that are its residual stream.
RESIDUALS = ("before_mlp", "after_mlp")


@dataclasses.dataclass(frozen=True)
class Mean:
  """What a probe measures, kept as a sum so that the means of several batches
  can be added; its location is None where it is not of a single one."""

  total: float  # the sum of the values
  count: int  # the number of values
  # an attention site; one of RESIDUALS; or the embeddings "source" or "inputs"
  part: str | None = None
  layer: int | None = None  # in the decoder (in the encoder for part "encoder")
  head: int | None = None
  line: str | None = None  # as `Lines.describe` writes it
  # of the row, or of the source token, that was patched
  position: int | None = None
  # for each scored output, in how many of `count` examples it is right
  by_position: np.ndarray | None = None
  success: bool = False  # whether every value is 1 (right) or 0 (wrong)

  @property
  def location(self) -> tuple:
    """The fields that say which part of the model the mean is of."""
    return self.part, self.layer, self.head, self.line, self.position

  def __add__(self, other: "Mean") -> "Mean":
    by_position = self.by_position
    if by_position is not None:
      by_position = by_position + other.by_position
    total, count = self.total + other.total, self.count + other.count
    return dataclasses.replace(
      self, total=total, count=count, by_position=by_position
    )

  @property
  def value(self) -> float:
    return float(self.total / self.count)


@dataclasses.dataclass(frozen=True, eq=False)
class Observation:
  """A model on a batch of its main task, which is all that a probe is given."""

  model: Model
  batch: Batch  # on the host
  # the number of examples that count, the first ones; the others only fill up
  # the batch
  count: int
  # of the longest operand or the list, in the units of `Task.units`
  length: int

  @property
  def experiment(self) -> Experiment:
    return self.model.experiment

  @property
  def task(self) -> Task:
    return self.model.experiment.task

  @functools.cached_property
  def _outputs(self) -> tuple[np.ndarray, dict]:
    return jax.device_get(self.model.observe(self.batch))

  @property
  def logits(self) -> np.ndarray:
    """Teacher-forced logits [B, T, V] of the main task's head."""
    return self._outputs[0]

  @property
  def acts(self) -> dict:
    """All activations, on the host, by the names of `Transformer`."""
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
    return len(blocks(self.acts))

  def residual(self, layer: int, name: str) -> np.ndarray:
    """Returns the residual stream [count, T, D] float32 of a decoder block;
    `name` is one of RESIDUALS."""
    residual_BxTxD = blocks(self.acts)[layer][name]
    return np.asarray(residual_BxTxD[: self.count], np.float32)

  def residuals(self) -> Iterator[tuple[int, str, np.ndarray]]:
    """Yields (layer, name, what `residual` returns), the first layer first."""
    for layer in range(self.num_layers):
      for name in RESIDUALS:
        yield layer, name, self.residual(layer, name)

  def attention(self) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yields the decoder's attention: site, layer, weights [count, H, T, S]."""
    for layer, block in enumerate(blocks(self.acts)):
      for site in ("self", "cross"):
        if attention := block.get(f"{site}_attention"):
          yield site, layer, np.asarray(attention["weights"])[: self.count]

  def project(self, x: np.ndarray, basis: str) -> np.ndarray:
    """Returns the inner products [..., V] of vectors [..., D] with those of the
    basis "encoder" or "decoder"."""
    params = self.model.params
    vectors_DxV = params[f"logits_dense_{self.task.name}"]["kernel"]
    if basis == "encoder":
      vectors_DxV = params["token_embedder"]["embedding"].T
    return x @ np.asarray(vectors_DxV, np.float32)


def observations(
  model: Model,
  length: int,
  samples: int,
  *,
  seed: int = 0,
  exact: bool = True,
) -> Iterator[Observation]:
  """Yields observations of a model on random inputs of its task's first test
  set, in as many batches as memory requires.

  Args:
    model: a trained model.
    length: the length of the inputs, in the unit of the task.
    samples: how many inputs there are, or fewer if the length has fewer.
    seed: the seed of the inputs.
    exact: whether batches are padded to exactly this length; otherwise one
      compiled program serves several lengths.

  Raises:
    UsageError: the model takes no inputs of this length.
  """
  experiment, task = model.experiment, model.experiment.task
  width, units = experiment.test_width(length), task.units(length)
  experiment.check_scaffold(width, model.scaffold)
  longest = width if exact else experiment.bound(width, model.scaffold)
  layers = experiment.model.config.num_decoder_layers
  example_bytes = layers * attention_bytes(experiment, longest, False)
  samples = task.num_test_samples(next(iter(task.test_sets)), length, samples)
  num_batches = math.ceil(samples / max(ATTENTION_BYTES // example_bytes, 1))
  batch_size = math.ceil(samples / num_batches)
  key = jax.random.fold_in(rng.stream(seed, "probe"), length)
  for start in range(0, samples, batch_size):
    index = np.minimum(np.arange(start, start + batch_size), samples - 1)
    batch = experiment.random_batch(
      key,
      jnp.asarray(index),
      units,
      np.asarray(width, np.int32),
      longest,
    )
    count, batch = min(batch_size, samples - start), jax.device_get(batch)
    yield Observation(model, batch, count, units)
