"""A trained model of one seed: what it says, and how it is tested."""

import dataclasses
import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import memory
from lengthgen_jax.attention.biases.scaffold import open_heads
from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.evaluation import answers
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models import decode
from lengthgen_jax.tasks import data
from lengthgen_jax.training.mesh import ONE, Mesh

LONG = 1 << 16  # rows beyond which outputs are decoded, where rows are few


class Test(NamedTuple):
  """A test set at one length.

  Attributes:
    name: in result rows.
    test_set: in the task's test_sets.
    how: its further arguments.
    length: as people count it.
    samples, count: how many there are, and how many count (None: all).
    seed: of the samples.
    memory_mb: what attention may take at once, 0 for the usual.
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
    experiment: what they were trained in.
    scaffold: lines or matrices of this seed, by site.
    params: of the flax module.
    seed: of the run.
    step: of the checkpoint; for "best", where this seed was best.
    stopped_at: step at which the seed was frozen, -1 if it was not.
    diverged: whether it became non-finite.
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
  mesh: Mesh = ONE

  @property
  def open_heads(self) -> tuple | None:
    """(site, transparent heads by layer), where attention runs along lines;
    else None. Hashable, so static under jit."""
    if not self.experiment.lined(self.scaffold):
      return None
    return tuple((site, open_heads(own)) for site, own in self.scaffold.items())

  def ring(self, batch) -> tuple[int, int] | None:
    """Keys that decoding keeps, see decode.stream; None where it needs all."""
    experiment, heads = self.experiment, self.open_heads
    config = experiment.model.config
    streams = (
      heads is not None
      and not any(own for _, layers in heads for own in layers)
      and experiment.kind == "encoder_decoder"
      and not experiment.bias.allow_leak
      and config.positions.placeless
      and config.temperature.kind == "none"
    )
    own = self.scaffold.get("self")
    return own.ring(experiment.task.target, batch.rows) if streams else None

  def batches(self, test: Test):
    """Batches of a test, and how many of each count; the last is filled up."""
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
    """Examples per pass, so that attention stays within test.memory_mb on each
    device; UsageError if not even one can."""
    experiment = self.experiment
    width = experiment.test_width(test.length, test.how)
    width = experiment.bound(width, self.scaffold)
    per_example = memory.of_example(experiment, width, self.open_heads)
    what = f"{test.length} {experiment.task.unit}"
    memory.check_pass(per_example, test.memory_mb, what)
    # What fits a CPU's cache is twice as fast as what fits its memory.
    usual = 16 if jax.default_backend() == "cpu" else 1024
    most = ((test.memory_mb or usual) << 20) // per_example
    return max(most, 1) * self.mesh.count

  def hits(self, batch):
    """Right tokens [B, T] and exact match [B] of a batch of the main task.

    From one teacher-forced pass; where the scaffold shows the future that
    proves nothing, so the outputs are decoded; so are very long ones, whose
    rows would not fit memory together.
    """
    long = batch.inputs.shape[1] > LONG and self.ring(batch)
    if not self.experiment.bias.allow_leak and not long:
      args = self.params, self.scaffold, batch
      return _hits(self.mesh, self.experiment, self.open_heads, *args)
    scored = np.asarray(batch.weight) > 0
    wanted = np.asarray(batch.target)[scored].reshape(len(scored), -1)
    told = self.greedy(batch, stop=None)[:, : wanted.shape[1]]
    right = np.ones(batch.target.shape, bool)
    right[scored] = (told == wanted).reshape(-1)
    return right, right.all(axis=1)

  def greedy(self, batch, stop):
    """Outputs [B, T] of greedy decoding; see decode.greedy."""
    outputs = int(np.asarray(batch.weight).sum(axis=1).max())
    how = self.mesh, self.experiment, stop, self.ring(batch)
    args = self.params, self.scaffold, batch, jnp.int32(outputs)
    return np.asarray(_greedy(*how, *args))

  # From Python: what people ask.

  @property
  def lines(self) -> dict:
    """The scaffold by attention site: lines or matrices, or nothing."""
    return self.scaffold

  def answers(self, texts, work=False) -> list[str]:
    """One line for each text: the answer (`work`: and the way there), or
    `error: ...`."""
    return answers.answers(self, list(texts), work)

  def exact_match(self, length: int, samples=1000, test_set="", seed=0):
    """Share of random inputs of a length that are answered exactly.

    Args:
      length: as people count it.
      samples: how many inputs.
      test_set: of the task, its first one by default.
      seed: of the inputs.
    """
    name = test_set or next(iter(self.experiment.task.test_sets))
    test = Test(name, name, (), length, samples, seed)
    found = [self.hits(batch)[1][:count] for batch, count in self.batches(test)]
    return float(np.concatenate(found).mean())

  def typed(self, text: str):
    """One input as a batch."""
    experiment, task = self.experiment, self.experiment.task
    parsed = task.parse(text)
    what = f"{max(parsed[1])} {task.unit}"
    own = experiment.width(parsed[1], what, "this model takes at most {}")
    width = data.widest([own, *experiment.data[0].widths])
    experiment.check_scaffold(width, self.scaffold)
    return data.typed_batch(task, experiment.kind, [parsed], width, width)

  def observe(self, batch):
    """Teacher-forced logits [B, T, V], and activations."""
    return _observe(self.experiment, self.params, self.scaffold, batch)

  def attention(self, text: str):
    """One input as a batch, and softmax weights by layer: {site: [H, T, S]}."""
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
def _observe(experiment, params, scaffold, batch):
  return experiment.apply(params, scaffold, batch, experiment.task.name)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _hits(mesh: Mesh, experiment, open_heads, params, scaffold, batch):
  args = params, scaffold, mesh.split(batch), experiment.task.name
  return mesh.whole(experiment.hits(*args, open_heads=open_heads))


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _greedy(mesh: Mesh, experiment, stop, ring, params, scaffold, batch, count):
  args = experiment, params, scaffold, mesh.split(batch), count, stop
  told = decode.stream(*args, ring) if ring else decode.greedy(*args)
  return mesh.whole(told)


def models(run, states, checkpoint: str) -> list[Model]:
  """A Model for every seed of a run, to be asked on all its devices.

  Args:
    run: experiment, scaffold, seeds and mesh: a loop.Run.
    states: its [R, ...].
    checkpoint: "best" takes the best parameters by validation.
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
      mesh=run.mesh.flat,
    )
    for r, seed in enumerate(run.seeds)
  ]


def best(models: list[Model]) -> Model:
  """The best by validation; one that diverged if there is no other."""
  sound = [model for model in models if not model.diverged]
  return max(sound or models, key=lambda model: model.em)
