"""A trained model of one seed: what it says, and how it is tested."""

import dataclasses
import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import answer
from lengthgen_jax.attention.biases.scaffold import open_heads
from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models import decode
from lengthgen_jax.tasks import data

LONG = 1 << 16  # rows beyond which outputs are decoded, where rows are few
LINED_KEYS = 8  # keys of a row that a pass along lines reckons with


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
  """

  experiment: Experiment
  scaffold: dict
  params: dict
  seed: int = 0
  step: int = 0
  stopped_at: int = -1
  diverged: bool = False
  em: float = 0.0

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
    """Examples per pass, so that attention stays within test.memory_mb.

    Counts scores, logits and weights of one layer's sites in float32; along
    lines, what stands on a few keys.
    """
    experiment, task = self.experiment, self.experiment.task
    width = experiment.test_width(test.length, test.how)
    width = experiment.bound(width, self.scaffold)
    config = experiment.model.config
    sources, rows = task.prompt_size(width), task.output_size(width)
    if experiment.kind == "decoder_only":
      sources, rows = 0, sources + rows
    cells = max(
      rows * (rows + sources), sources**2 * bool(config.num_encoder_layers)
    )
    per_sample = 3 * 4 * config.num_heads * cells
    heads = self.open_heads
    if heads is not None:
      most = max(len(own) for _, layers in heads for own in layers)
      per_sample = per_sample * most // config.num_heads
      per_sample += 4 * config.emb_dim * rows * LINED_KEYS
    # What fits a CPU's cache is twice as fast as what fits its memory.
    usual = 16 if jax.default_backend() == "cpu" else 1024
    return max(((test.memory_mb or usual) << 20) // per_sample, 1)

  def hits(self, batch):
    """Right tokens [B, T] and exact match [B] of a batch of the main task.

    From one teacher-forced pass; where the scaffold shows the future that
    proves nothing, so the outputs are decoded; so are very long ones, whose
    rows would not fit memory together.
    """
    long = batch.inputs.shape[1] > LONG and self.ring(batch)
    if not self.experiment.bias.allow_leak and not long:
      args = self.experiment, self.params, self.scaffold, batch
      return _hits(*args, self.experiment.task.name, open_heads=self.open_heads)
    scored = np.asarray(batch.weight) > 0
    wanted = np.asarray(batch.target)[scored].reshape(len(scored), -1)
    told = self.greedy(batch, stop=None)[:, : wanted.shape[1]]
    right = np.ones(batch.target.shape, bool)
    right[scored] = (told == wanted).reshape(-1)
    return right, right.all(axis=1)

  def greedy(self, batch, stop):
    """Outputs [B, T] of greedy decoding; see decode.greedy."""
    outputs = int(np.asarray(batch.weight).sum(axis=1).max())
    args = self.experiment, self.params, self.scaffold, batch
    args += jnp.int32(outputs), stop
    ring = self.ring(batch)
    if ring:
      return np.asarray(decode.stream(*args, ring))
    return np.asarray(decode.greedy(*args))

  # From Python: what people ask.

  @property
  def lines(self) -> dict:
    """The scaffold by attention site: lines or matrices, or nothing."""
    return self.scaffold

  def answers(self, texts, work=False) -> list[str]:
    """One line for each text: the answer (`work`: and the way there), or
    `error: ...`."""
    return answer.answers(self, list(texts), work)

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
    own = experiment.fixed_width or task.padded(parsed[1])
    width = data.widest([own, *experiment.data[0].widths])
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


_hits = jax.jit(
  Experiment.hits, static_argnums=(0, 4), static_argnames="open_heads"
)


def models(experiment, scaffold, seeds, states, checkpoint: str) -> list[Model]:
  """A Model for every seed of a run's states.

  Args:
    experiment: what was trained.
    scaffold: with a leading axis R or 1.
    seeds: R of them.
    states: [R, ...].
    checkpoint: "best" takes the best parameters by validation.
  """
  best = checkpoint == "best"
  params = states.best_params if best else states.params
  step = int(states.step.max())
  return [
    Model(
      experiment,
      of_seed(scaffold, r),
      jax.tree.map(lambda x, r=r: x[r], params),
      seed=int(seed),
      step=int(states.best_step[r]) if best else step,
      stopped_at=int(states.stopped_at[r]),
      diverged=bool(states.diverged[r]),
      em=max(float(states.best_em[r]), 0.0),
    )
    for r, seed in enumerate(seeds)
  ]


def best(models: list[Model]) -> Model:
  """The best by validation; one that diverged if there is no other."""
  sound = [model for model in models if not model.diverged]
  return max(sound or models, key=lambda model: model.em)
