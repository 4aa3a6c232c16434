"""Tiny models of either family that nobody trained."""

import jax
import jax.numpy as jnp
import numpy as np
import tiny

from lengthgen_jax.config.build import build
from lengthgen_jax.tasks import dataset


def config(task="addition", kind="encoder_decoder", fields=()):
  """tests/tiny.py with some fields changed: {"positions.kind": "rope"}."""
  config = tiny.of_kind(task, kind)
  with config.unlocked():
    config.update_from_flattened_dict(dict(fields))
  return config


def experiment(task="addition", kind="encoder_decoder", fields=()):
  return build(config(task, kind, fields))


def params(built, seed=0):
  """Every parameter drawn at random, so that none hides behind a zero."""
  rng = np.random.default_rng(seed)

  def draw(x):
    scale = 0.3 if x.ndim > 1 else 1.0
    return jnp.array(scale * rng.normal(size=x.shape), x.dtype)

  return jax.tree.map(draw, jax.eval_shape(lambda: built.init(0)))


def typed(built, *texts, width=4, longest=None):
  """A batch of what a person types, padded to `longest`."""
  parsed = [built.task.parse(text) for text in texts]
  if built.task.ragged:
    width = max(max(lengths) for _, lengths in parsed)
  bound = longest or width
  return dataset.typed_batch(built.task, built.kind, parsed, width, bound)
