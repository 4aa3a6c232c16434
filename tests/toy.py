"""This module has an experiment that compiles in a second: linear regression on
four inputs, with an output head for each of two tasks.

What becomes of a seed is data: its scaffold is {"fate": one of the fates
below}.
"""

import dataclasses
import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import rng
from lengthgen_jax.sections import Train
from lengthgen_jax.tasks.dataset import Part, Share
from lengthgen_jax.training import loop
from lengthgen_jax.training.loop import TrainSpec

# Fates.
CONVERGING = 0  # it learns SOLUTION
BAD_LOSS = 1  # its loss is never finite
BAD_UPDATE = 2  # its losses are finite, but the last gradient of a cycle is not
HOPELESS = 3  # its losses are finite, but no answer is ever right

SOLUTION = (0.5, 1.0, -1.0, 2.0)


class Points(NamedTuple):
  """Points are a batch: inputs [B, 4], weight [B], the index of its width, and
  target [B], the class of the right answer."""

  inputs: jax.Array
  weight: jax.Array
  width_index: jax.Array
  target: jax.Array
  source: None = None


@jax.custom_vjp
def spoiled(x, bad):
  """Returns x; its gradient is not finite if `bad`."""
  return x


spoiled.defvjp(
  lambda x, bad: (x, bad), lambda bad, g: (jnp.where(bad, jnp.nan, g), None)
)


@dataclasses.dataclass(frozen=True)
class Toy:
  """A Toy has those attributes and methods of an Experiment that training uses.

  Attributes:
    output_heads: the names of the output heads, the main task's first.
    weights: the weights of the heads in one gradient step for all of them; ()
      if each head has a step of its own.
    num_widths: the number of widths that take turns, the same for all heads.
  """

  output_heads: tuple = ("main", "hint")
  weights: tuple = ()
  num_widths: int = 2
  model = types.SimpleNamespace(  # so small that no batch is split
    config=types.SimpleNamespace(num_heads=1, mlp_dim=1)
  )

  @property
  def width_counts(self):
    return (self.num_widths,) * len(self.output_heads)

  @property
  def step_specs(self):
    parts = (Part(0, 16),)
    if self.weights:
      pairs = zip(self.output_heads, self.weights, strict=True)
      return (tuple(Share(*pair, parts) for pair in pairs),)
    return tuple((Share(head, 1.0, parts),) for head in self.output_heads)

  @property
  def validation(self):
    return tuple(Share(head, 1.0, (Part(0, 64),)) for head in self.output_heads)

  def idle_params(self, step_spec):
    return set(self.output_heads) - {share.head for share in step_spec}

  def init(self, seed):
    params = {head: {"offset": jnp.zeros(())} for head in self.output_heads}
    trunk = jax.random.uniform(rng.stream(seed, "init"), (4,))
    return params | {"trunk": trunk}

  def sample(self, key, head, part, width_index=0, held_out=False, seed=None):
    key = jax.random.fold_in(key, 2 * self.output_heads.index(head) + held_out)
    x = jax.random.uniform(key, (part.count, 4), minval=-1.0)
    zeros = jnp.zeros(part.count, int)
    return Points(x, jnp.ones(part.count), width_index, zeros)

  def wrong_by(self, params, scaffold, batch, head):
    """Returns answers minus right answers, [B]."""
    answer = batch.inputs @ params["trunk"] + params[head]["offset"]
    right = batch.inputs @ jnp.array(SOLUTION) + self.output_heads.index(head)
    return answer - right + 9.0 * (scaffold["fate"] == HOPELESS)

  def apply(self, params, scaffold, batch, head, noise, sparse):
    """Returns logits [B, 2] whose cross-entropy is the squared error."""
    fate = scaffold["fate"]
    bad_update = (fate == BAD_UPDATE) & (head == self.output_heads[-1])
    params = params | {"trunk": spoiled(params["trunk"], bad_update)}
    small = 0.01 * jax.random.uniform(noise.key, batch.weight.shape)
    error = self.wrong_by(params, scaffold, batch, head) + small
    squared = error**2 + jnp.where(fate == BAD_LOSS, jnp.nan, 1e-9)
    wrong = squared + jnp.log(-jnp.expm1(-squared))
    return jnp.stack([jnp.zeros_like(wrong), wrong], axis=-1), {}

  def matches(self, params, scaffold, batch, head, sparse=False):
    """Returns which examples [B] are right: those that are off by less than
    0.5, or by less than 5 at the second width."""
    error = self.wrong_by(params, scaffold, batch, head)
    right = jnp.abs(error) < jnp.where(batch.width_index % 2, 5.0, 0.5)
    return right


def scaffold(*fates) -> dict:
  """Returns the scaffold of seeds with these fates, one each."""
  return {"fate": jnp.array(fates)}


def train_config(**fields) -> Train:
  """Returns the section `train` for a toy, with some fields changed."""
  usual = {"steps": 400, "batch_size": 16, "learning_rate": 0.05}
  usual |= {"warmup_steps": 4, "schedule": "constant", "clip_norm": 0.0}
  usual |= {"chunk": 20, "validation_samples": 64, "target_exact_match": 0.95}
  return Train(**usual | fields)


def chunk(spec, states, seeds, scaffold, rounds: int):
  """Returns the states [R, ...] and the metrics after some rounds of every seed
  that is not done."""
  train = dataclasses.replace(spec.train, chunk=rounds * spec.steps_per_cycle)
  of_every_seed = lambda x: jnp.broadcast_to(x, (len(seeds), *x.shape[1:]))
  scaffold = jax.tree.map(of_every_seed, scaffold)
  inputs = states, np.array(seeds, np.int32), scaffold
  spec = dataclasses.replace(spec, train=train)
  return jax.device_get(loop.over_seeds(loop.train_chunk, spec)(inputs))


def train_spec(seed_axis: str = "loop") -> TrainSpec:
  """Returns the TrainSpec of a Toy."""
  return TrainSpec(Toy(), train_config(seed_axis=seed_axis))
