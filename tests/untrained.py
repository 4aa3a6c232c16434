"""This module has tiny models of either family that nobody trained."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import tiny

from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.config.build import build, make_scaffold
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.tasks import dataset


def config(task="addition", kind="encoder_decoder", fields=()):
  """Returns the config tiny.of_kind(task, kind) with some fields changed, like
  {"positions.kind": "rope"}."""
  config = tiny.of_kind(task, kind)
  with config.unlocked():
    config.update_from_flattened_dict(dict(fields))
  return config


def experiment(task="addition", kind="encoder_decoder", fields=()):
  """Returns the Experiment of `config`."""
  return build(config(task, kind, fields))


@functools.cache
def shapes(built):
  """Returns the shapes of an Experiment's parameters."""
  return jax.eval_shape(lambda: built.init(0))


def params(built, seed=0):
  """Returns random parameters of an Experiment, none of which is zero, so that
  each has an effect."""
  rng = np.random.default_rng(seed)

  def draw(x):
    scale = 0.3 if x.ndim > 1 else 1.0
    # With another type, or by jnp.asarray, JAX compiles a program per shape.
    return jnp.array((scale * rng.normal(size=x.shape)).astype(x.dtype))

  return jax.tree.map(draw, shapes(built))


def model(task="addition", kind="encoder_decoder", fields=()):
  """Returns a Model of `experiment`, with the scaffold of `config`."""
  built = experiment(task, kind, fields)
  scaffold = make_scaffold(config(task, kind, fields), built)
  return Model(built, of_seed(scaffold, 0), params(built))


def typed(built, *texts, width=4, longest=None):
  """Returns a Batch of what people type.

  Args:
    built: an Experiment.
    *texts: the inputs.
    width: the width that operands are padded to; not used in ragged tasks.
    longest: the static bound of widths; None for the width.
  """
  parsed = [built.task.parse(text) for text in texts]
  if built.task.ragged:
    width = max(max(lengths) for _, lengths in parsed)
  bound = longest or width
  return dataset.parsed_batch(built.task, built.kind, parsed, width, bound)


def with_target(batch, answers):
  """The same prompts with other outputs [B, outputs] as the truth."""
  scored = np.asarray(batch.weight) > 0
  target, inputs = np.array(batch.target), np.array(batch.inputs)
  target[scored] = np.asarray(answers).reshape(-1)
  inputs[:, 1:] = np.where(scored[:, :-1], target[:, :-1], inputs[:, 1:])
  return batch._replace(target=target, inputs=inputs)
