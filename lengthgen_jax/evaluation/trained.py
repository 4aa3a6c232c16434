"""A trained model of one seed: its outputs, tests and activations."""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import memory
from lengthgen_jax.attention.biases.scaffold import SiteMatrix, SparsePlan
from lengthgen_jax.attention.lines import SiteLines, of_seed
from lengthgen_jax.evaluation import answers
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models import decode
from lengthgen_jax.tasks import dataset
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.training.mesh import SINGLE_DEVICE, Mesh

# Output rows beyond which outputs are decoded where that keeps few keys, as one
# teacher-forced pass would not fit memory.
LONG = 1 << 16


class Test(NamedTuple):
  """A test set at one length.

  Attributes:
    name: name of the test set in result rows.
    test_set: key in the task's test_sets.
    how: further arguments of the test set's function.
    length: the length as people count it.
    samples, count: how many samples there are, and how many of them are tested
      (None: all).
    seed: seed of the samples.
    memory_mb: MiB that attention may take at once, 0 for the default.
  """

  name: str
  test_set: str
  how: tuple
  length: int
  samples: int
  seed: int = 0
  memory_mb: int = 0
  count: int | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
  """One seed's parameters and scaffold, and where they come from.

  Attributes:
    experiment: the experiment in which they were trained.
    scaffold: lines or matrices of this seed, by site.
    params: parameters of the flax module.
    seed: the seed of the run.
    step: step of the checkpoint; for "best", where this seed was best.
    stopped_at: step at which the seed was frozen, -1 if it was not.
    diverged: whether its parameters became non-finite.
    em: best validation exact match.
    mesh: the devices that batches are split over.
  """

  experiment: Experiment
  scaffold: dict
  params: dict
  seed: int = 0
  step: int = 0
  stopped_at: int = -1
  diverged: bool = False
  em: float = 0.0
  mesh: Mesh = SINGLE_DEVICE

  @property
  def sparse_plan(self) -> SparsePlan | None:
    """Returns the plan for attention along lines, None where it is dense."""
    return self.experiment.sparse_plan(self.scaffold)

  def cache_window(self, batch: Batch) -> tuple[int, int] | None:
    """Returns how many first and recent keys decoding keeps, None for all.

    The two numbers are those of `decode.stream`.
    """
    experiment, plan = self.experiment, self.sparse_plan
    config = experiment.model.config
    streams = (
      plan is not None
      and not plan.most_dense_heads
      and experiment.kind == "encoder_decoder"
      and not experiment.bias.allow_leak
      and config.positions.placeless
      and config.temperature.kind == "none"
    )
    entry = self.scaffold.get("self")
    return (
      entry.cache_window(experiment.task.target_segment, batch.rows)
      if streams
      else None
    )

  def batches(self, test: Test) -> Iterator[tuple[Batch, int]]:
    """Yields the batches of a test, and how many examples of each count.

    The last batch is padded with copies of its last example.
    """
    samples = test.samples if test.count is None else test.count
    passes = math.ceil(test.samples / self.pass_size(test))
    size = math.ceil(test.samples / passes)
    for start in range(0, samples, size):
      index = np.minimum(np.arange(start, start + size), samples - 1)
      batch = self.experiment.test_batch(
        test.test_set, test.seed, index, test.length, self.scaffold, test.how
      )
      yield batch, min(size, samples - start)

  def pass_size(self, test: Test) -> int:
    """Returns the number of examples per pass.

    With so many, attention stays within test.memory_mb on each device.

    Raises:
      UsageError: attention to one example takes more.
    """
    experiment = self.experiment
    width = experiment.test_width(test.length, test.how)
    width = experiment.bound(width, self.scaffold)
    per_example = memory.of_example(experiment, width, self.sparse_plan)
    size_text = f"{test.length} {experiment.task.unit}"
    memory.check_pass(per_example, test.memory_mb, size_text)
    # On a CPU, batches that fit the cache are twice as fast as larger ones.
    usual_mb = 16 if jax.default_backend() == "cpu" else 1024
    examples = ((test.memory_mb or usual_mb) << 20) // per_example
    return max(examples, 1) * self.mesh.size

  def hits(
    self, batch: Batch
  ) -> tuple[np.ndarray | jax.Array, np.ndarray | jax.Array]:
    """Returns right tokens [B, T] and exact match [B] of a batch.

    The batch is of the main task. One teacher-forced pass gives both. Outputs
    are decoded instead where the scaffold shows the future, since teacher
    forcing proves nothing there, and where they are so long that their rows
    would not fit memory together.
    """
    long = batch.inputs.shape[1] > LONG and self.cache_window(batch)
    if not self.experiment.bias.allow_leak and not long:
      args = self.params, self.scaffold, batch
      return _hits(self.mesh, self.experiment, self.sparse_plan, *args)
    scored = np.asarray(batch.weight) > 0
    target = np.asarray(batch.target)[scored].reshape(len(scored), -1)
    outputs = self.greedy(batch, stop=None)[:, : target.shape[1]]
    right = np.ones(batch.target.shape, bool)
    right[scored] = (outputs == target).reshape(-1)
    return right, right.all(axis=1)

  def greedy(self, batch: Batch, stop: int | None) -> np.ndarray:
    """Returns the outputs [B, T] of greedy decoding; see `decode.greedy`."""
    output_count = int(np.asarray(batch.weight).sum(axis=1).max())
    static_args = self.mesh, self.experiment, stop, self.cache_window(batch)
    traced_args = self.params, self.scaffold, batch, jnp.int32(output_count)
    return np.asarray(_greedy(*static_args, *traced_args))

  # Methods for people who use a model from Python.

  @property
  def lines(self) -> dict[str, SiteLines | SiteMatrix]:
    """Returns the scaffold by attention site: lines, matrices, or {}."""
    return self.scaffold

  def answers(self, texts: Iterable[str], work: bool = False) -> list[str]:
    """Returns one line for each text: the answer, or `error: ...`.

    With `work`, answers show the intermediate steps too.
    """
    return answers.answers(self, list(texts), work)

  def exact_match(
    self, length: int, samples: int = 1000, test_set: str = "", seed: int = 0
  ) -> float:
    """Returns the share of random inputs of a length that are answered exactly.

    Args:
      length: the length as people count it.
      samples: how many inputs are tested.
      test_set: a test set of the task, the first one by default.
      seed: seed of the inputs.
    """
    name = test_set or next(iter(self.experiment.task.test_sets))
    test = Test(name, name, (), length, samples, seed)
    matches = [
      self.hits(batch)[1][:count] for batch, count in self.batches(test)
    ]
    return float(np.concatenate(matches).mean())

  def typed(self, text: str) -> Batch:
    """Returns one typed input as a batch."""
    experiment, task = self.experiment, self.experiment.task
    parsed = task.parse(text)
    size_text = f"{max(parsed[1])} {task.unit}"
    typed_width = experiment.width(
      parsed[1], size_text, "this model takes at most {}"
    )
    width = dataset.widest([typed_width, *experiment.data[0].widths])
    experiment.check_scaffold(width, self.scaffold)
    return dataset.typed_batch(task, experiment.kind, [parsed], width, width)

  def observe(self, batch: Batch) -> tuple[jax.Array, dict]:
    """Returns teacher-forced logits [B, T, V] and activations."""
    return _observe(self.experiment, self.params, self.scaffold, batch)

  def attention(self, text: str) -> tuple[Batch, list[dict[str, np.ndarray]]]:
    """Returns one typed input as a batch, and its attention weights.

    The weights are {site: [H, T, S]} for each layer of the decoder.
    """
    _, acts = self.observe(batch := self.typed(text))
    return batch, [
      {
        site: np.asarray(block[site]["weights"][0])
        for site in ("self", "cross")
        if site in block
      }
      for block in acts["decoder"]["blocks"]
    ]


@partial(jax.jit, static_argnums=0)
def _observe(
  experiment: Experiment, params: dict, scaffold: dict, batch: Batch
):
  """Returns logits and activations of a batch, compiled."""
  return experiment.apply(params, scaffold, batch, experiment.task.name)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _hits(
  mesh: Mesh,
  experiment: Experiment,
  sparse_plan: SparsePlan | None,
  params: dict,
  scaffold: dict,
  batch: Batch,
):
  """Returns right tokens and exact match of a teacher-forced pass, compiled."""
  args = params, scaffold, mesh.shard_batch(batch), experiment.task.name
  return mesh.replicate(experiment.hits(*args, sparse_plan=sparse_plan))


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _greedy(
  mesh: Mesh,
  experiment: Experiment,
  stop: int | None,
  cache_window: tuple[int, int] | None,
  params: dict,
  scaffold: dict,
  batch: Batch,
  count: jax.Array,
):
  """Returns greedily decoded outputs, compiled."""
  args = experiment, params, scaffold, mesh.shard_batch(batch), count, stop
  outputs = (
    decode.stream(*args, cache_window) if cache_window else decode.greedy(*args)
  )
  return mesh.replicate(outputs)


def models(run, states, checkpoint: str) -> list[Model]:
  """Returns a Model for every seed of a run, on all devices of the run.

  Args:
    run: a training.loop.Run, with experiment, scaffold, seeds and mesh.
    states: training states of its seeds, stacked [R, ...].
    checkpoint: "best" takes the parameters that were best in validation.
  """
  best = checkpoint == "best"
  params = states.best_params if best else states.params
  step = int(states.step.max())
  return [
    Model(
      run.experiment,
      of_seed(run.scaffold, r),
      jax.tree.map(lambda x, r=r: x[r], params),
      seed=int(seed),
      step=int(states.best_step[r]) if best else step,
      stopped_at=int(states.stopped_at[r]),
      diverged=bool(states.diverged[r]),
      em=max(float(states.best_em[r]), 0.0),
      mesh=run.mesh.for_one_seed(),
    )
    for r, seed in enumerate(run.seeds)
  ]


def best(models: list[Model]) -> Model:
  """Returns the best model by validation, a diverged one if all diverged."""
  sound = [model for model in models if not model.diverged]
  return max(sound or models, key=lambda model: model.em)
